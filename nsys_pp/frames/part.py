"""A part: the contribution of one report to a trace and to tables; its trace events are already encoded.

`nsys_pp.run.report` builds parts, `nsys_pp.write.parts` and `nsys_pp.read.parts` store them in files. A part does
not depend on other reports or their clocks: times are on the clock of its report.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from msgspec import Struct

from nsys_pp.frames.report import Session

FORMAT = 16  # version of the file and of its encoded blocks; incremented when either changes
SUFFIX = ".nspart"
# Members of the file, which is a zip.
FACTS_MEMBER, BLOCKS_MEMBER, FRAMES_MEMBER = "part.json", "trace.blocks", "frames"

SubtrackKind = Literal["slices", "marks", "counter"]


class Track(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of a trace; `path` is its position in the tree of tracks.

    Tracks without subtracks and without children are not drawn. Siblings are sorted by `rank`.
    """

    path: tuple[str, ...]  # unique; in the drawing of a report without the machine: ("GPU 0", "stream 7")
    name: str
    rank: int
    description: str = ""
    counter_unit: str | None = None  # set for counter tracks only


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outermost row of a report, as a trace shows it under its machine."""

    name: str  # "GPU 0 · rank 3 · stage 1"; rows with the same name and machine are merged
    order: int  # among the rows of the machine
    description: str = ""
    title: str = ""  # its name where it is shown outside of its machine, above all machines; "": it is not
    title_order: tuple[int, ...] = ()  # among all rows with a title


class EncodedSubtrack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An encoded subtrack; subtracks without rows are not encoded."""

    track: tuple[str, ...]  # path of its track in the report
    ordinal: int  # 0, 1, ... among the subtracks of its track
    kind: SubtrackKind
    rows: int
    first_ns: int  # earliest and latest time of its events, on the report's clock
    last_ns: int
    size_bytes: (
        int  # of its blocks; where subtracks of a track are encoded together, of all of them at the first one
    )


class Encoded(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tracks and encoded subtracks of one report; the header of a trace is computed from them.

    The blocks are stored separately, in order of the subtracks.
    """

    report_id: int  # 64 bits, unique per report
    base_ns: int  # origin of the times in the blocks, on the report's clock
    tracks: list[Track]
    subtracks: list[EncodedSubtrack]
    is_packed: bool = False  # blocks are packed, as in parts

    @property
    def size_bytes(self) -> int:
        """Total size of the blocks of all subtracks."""
        return sum(subtrack.size_bytes for subtrack in self.subtracks)

    @property
    def event_count(self) -> int:
        """Number of slices, marks and samples of counters."""
        return sum(subtrack.rows for subtrack in self.subtracks)

    @property
    def slice_count(self) -> int:
        """Number of slices in all subtracks."""
        return sum(subtrack.rows for subtrack in self.subtracks if subtrack.kind == "slices")


class PartOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that a report was extracted with."""

    detail: str = "kernels"
    ops: tuple[str, ...] = ("kernel",)
    scope: str = "auto"
    flows: bool = False
    show: tuple[str, ...] = ()  # kinds of data on request: keys of `nsys_pp.frames.choices.SHOW_KINDS`
    preset: str | None = None  # naming rules of jobs; None: detected
    job_patterns: tuple[str, ...] = ()
    step_patterns: tuple[str, ...] = ()

    def words(self) -> str:
        """Format the options as arguments of the command line.

        >>> PartOptions(ops=("kernel", "memcpy"), step_patterns=("epoch",)).words()
        "--detail kernels --ops kernel,memcpy --scope auto --step-pattern 'epoch'"
        """
        words = [f"--detail {self.detail} --ops {','.join(self.ops)} --scope {self.scope}"]
        words += ["--flows"] * self.flows
        words += [f"--show {','.join(self.show)}"] * bool(self.show)
        words += [f"--preset {self.preset}"] * (self.preset is not None)
        words += [f"--job-pattern '{pattern}'" for pattern in self.job_patterns]
        words += [f"--step-pattern '{pattern}'" for pattern in self.step_patterns]
        return " ".join(words)


class PartFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a report, in addition to its frames."""

    session: Session
    fingerprint: int  # of `Report`
    preset: str = ""  # name of the naming rules; "" where none fits
    unmatched: tuple[str, ...] = ()  # options of the user that fit no range
    data_warnings: tuple[str, ...] = ()  # reasons to doubt its events: sentences of `nsys_pp.model.contents`
    recorded: tuple[str, ...] | None = (
        None  # kinds of data with rows; None: neither jobs nor aggregates were read
    )
    is_folded: bool | None = (
        None  # numbers in names of ranges are replaced in the aggregates: there are too many names; None: no aggregates
    )


class PartRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The member `FACTS_MEMBER` of a part, in JSON."""

    format: int
    made_by: str  # version of nsys-pp
    source: str  # path of the report
    options: PartOptions
    facts: PartFacts
    encoded: Encoded  # without its subtracks: they are a frame
    frame_bytes: dict[str, int]  # size of each frame in the member `FRAMES_MEMBER`, in order


class Part(Struct, frozen=True, kw_only=True):
    """One report, extracted."""

    source: Path  # path of the report
    made_by: str  # version of nsys-pp
    options: PartOptions
    facts: PartFacts
    # by name; after reading only the requested ones, each decoded when it is used
    frames: Mapping[str, pl.DataFrame]
    encoded: Encoded

    @property
    def drawn_job_count(self) -> int:
        """The number of jobs with a range that ran on a GPU; needs the frame "jobs"."""
        return self.frames["jobs"].drop_nulls(["start_ns", "range_id"]).height
