"""A part: what one report adds to a trace and its tables, with its trace already encoded.

`nsys_pp.commands.extract` makes it, `nsys_pp.write.parts` and `nsys_pp.read.parts` keep it in a file,
`nsys_pp.commands.merge` puts parts together. Nothing in it depends on other reports or on where the
report's clock stands on theirs: times are the report's own, rows are those of the report alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from nsys_pp.frames.report import Session

FORMAT = 4  # of the file, and of the encoded blocks in it; counts up with every change to either
SUFFIX = ".nspart"
# Members of the file, which is a zip; frames are `<name>.parquet`.
FACTS_MEMBER, BLOCKS_MEMBER, FRAME_ENDING = "part.json", "trace.blocks", ".parquet"

SubtrackKind = Literal["slices", "marks", "counter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A row of a trace; its place in the tree is its `path`.

    Tracks that hold no subtrack and no child are not drawn. The order among siblings is `rank`.
    """

    path: tuple[str, ...]  # unique; in a drawing that of the report alone: ("GPU 0", "stream 7")
    name: str
    rank: int
    description: str = ""
    counter_unit: str | None = None  # set for counter tracks only


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSubtrack:
    """A subtrack whose events are encoded; subtracks without rows are left out."""

    track: tuple[str, ...]  # path of its track in the report
    ordinal: int  # 0, 1, ... among the subtracks of its track
    kind: SubtrackKind
    rows: int
    first_ns: int  # earliest and latest time of its events, on the report's clock
    last_ns: int
    size_bytes: int  # of its blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What one report shows, encoded: all that stands before its blocks in a trace follows from this.

    The blocks themselves lie elsewhere, those of the first subtrack first.
    """

    report_id: int  # 64 bits that tell the report from all others
    base_ns: int  # times in the blocks count from here, on the report's clock
    tracks: list[Track]
    subtracks: list[EncodedSubtrack]

    @property
    def size_bytes(self) -> int:
        """Of all blocks."""
        return sum(subtrack.size_bytes for subtrack in self.subtracks)

    @property
    def slice_count(self) -> int:
        """Of all subtracks."""
        return sum(subtrack.rows for subtrack in self.subtracks if subtrack.kind == "slices")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOptions:
    """What a report's trace and tables were asked to show."""

    detail: str = "kernels"
    ops: tuple[str, ...] = ("kernel",)
    scope: str = "auto"
    flows: bool = False
    preset: str | None = None  # rules that say which ranges are jobs; None: what fits
    job_patterns: tuple[str, ...] = ()
    step_patterns: tuple[str, ...] = ()

    def words(self) -> str:
        """Write them as the command line has them.

        >>> PartOptions(ops=("kernel", "memcpy"), step_patterns=("epoch",)).words()
        "--detail kernels --ops kernel,memcpy --scope auto --step-pattern 'epoch'"
        """
        words = [f"--detail {self.detail} --ops {','.join(self.ops)} --scope {self.scope}"]
        words += ["--flows"] * self.flows
        words += [f"--preset {self.preset}"] * (self.preset is not None)
        words += [f"--job-pattern '{pattern}'" for pattern in self.job_patterns]
        words += [f"--step-pattern '{pattern}'" for pattern in self.step_patterns]
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """Facts of a report besides its frames."""

    session: Session
    fingerprint: int  # of `Report`
    preset: str = ""  # name of the naming rules; "" where none fits
    unmatched: tuple[str, ...] = ()  # options of the user that fit no range
    # Without aggregates both are None.
    recorded: tuple[str, ...] | None = None  # kinds of data with rows
    is_folded: bool | None = (
        None  # aggregates have numbers in names of ranges replaced, as there are too many names
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One report, extracted."""

    source: Path  # the report, as it was given
    made_by: str  # version of nsys-pp
    options: PartOptions
    facts: PartFacts
    frames: Mapping[str, pl.DataFrame]  # by name; a part that was read has those that were asked for
    encoded: Encoded
