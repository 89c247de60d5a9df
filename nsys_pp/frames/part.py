"""A part: what a report contributes to a run.

Identity, facts, frames, the encoded trace, reasons for doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from msgspec import Struct

from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.raw import ROW_COUNTS
from nsys_pp.frames.report import DEVICES, GPUS, PROCESSES, RANKS, Session
from nsys_pp.frames.roster import COORDINATES
from nsys_pp.frames.training import CAUSE, HOST_ACTIVITY, PART_MPI_MESSAGES, REPORT_FRAMES

# Place of the name of the report in a sentence.
REPORT = "{report}"
# Begins of the sentences on lost events: with a message of nsys, and with the number of missing kernels.
LOSS, NO_KERNEL = f"nsys says of {REPORT}: ", f"kernels of {REPORT} are missing: "

METRIC_WINDOWS = build_schema(
    {  # one row per window, by GPU and metric, then time_ns; a value is valid until the next row
        "process_key": pl.Int64,  # first process that uses the GPU; null: none
        "device_id": pl.Int32,
        "gpu": pl.String,  # of `SampledMetric`
        "bus": pl.String,
        "metric": pl.String,
        "time_ns": pl.Int64,  # on the report's clock
        "value": pl.Float64,  # mean of the window
        "peak": pl.Float64,  # largest sample in it
    },
    name="METRIC_WINDOWS",
)

METRIC_FAMILIES = build_schema(
    {  # one row per device, metric, step and family of kernels, of the samples of the report; any order
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "metric": pl.String,
        "family": pl.String,
        "step_start_ns": pl.Int64,  # of `STEPS`
        "integral": pl.Float64,
        "time_ns": pl.Int64,
        "peak": pl.Float64,
    },
    name="METRIC_FAMILIES",
)

NETWORK_WINDOWS = build_schema(
    # bytes that network cards and switches sent and received; one row per window, by source, owner, port and
    # direction, then start_ns
    {
        "source": pl.String,  # of `SampledMetric`, and likewise owner and port
        "owner": pl.String,
        "port": pl.String,
        "direction": pl.String,  # "sent" or "received"
        "start_ns": pl.Int64,  # on the report's clock
        "end_ns": pl.Int64,
        "bytes_per_ns": pl.Float64,  # mean
        "peak_bytes_per_ns": pl.Float64,  # of the largest sample
    },
    name="NETWORK_WINDOWS",
)

NETWORK_COLLECTIVES = build_schema(
    {  # one row per collective of known size, of reports with network metrics; by start_ns
        "start_ns": pl.Int64,  # of its kernel, on the report's clock
        "size_bytes": pl.Int64,
    },
    name="NETWORK_COLLECTIVES",
)

FORMAT = 1  # version of the file and of its encoded blocks; incremented when either changes
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
    show: tuple[str, ...] = ()  # kinds of data on request: keys of `nsys_pp.options.SHOW_KINDS`
    preset: str | None = None  # naming rules of jobs; None: detected
    job_patterns: tuple[str, ...] = ()
    step_patterns: tuple[str, ...] = ()

    def words(self) -> str:
        """Format the options as arguments of the command line.

        >>> PartOptions(ops=("kernel", "memcpy"), step_patterns=("epoch",)).words()
        "--detail kernels --ops kernel,memcpy --scope auto --step-pattern 'epoch'"
        """
        return " ".join(
            [
                f"--detail {self.detail} --ops {','.join(self.ops)} --scope {self.scope}",
                *["--flows"] * self.flows,
                *[f"--show {','.join(self.show)}"] * bool(self.show),
                *[f"--preset {self.preset}"] * (self.preset is not None),
                *(f"--job-pattern '{pattern}'" for pattern in self.job_patterns),
                *(f"--step-pattern '{pattern}'" for pattern in self.step_patterns),
            ]
        )


class PartFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a report, in addition to its frames."""

    session: Session
    fingerprint: int  # of `Report`
    preset: str = ""  # name of the naming rules; "" where none fits
    unmatched: tuple[str, ...] = ()  # options of the user that fit no range
    data_warnings: tuple[str, ...] = ()  # reasons to doubt its events: sentences of `nsys_pp.model.contents`
    recorded: tuple[str, ...] = ()  # kinds of data with rows
    is_folded: bool = False  # too many names of ranges: numbers in them are replaced in the aggregates


class PartRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The member `FACTS_MEMBER` of a part, in JSON."""

    format: int
    made_by: str  # version of nsys-pp
    source: str  # path of the report
    options: PartOptions
    facts: PartFacts
    encoded: Encoded
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


BUBBLE_HOSTS = build_schema(
    {  # as `HOST_TIMES`, with device and step of the report; by all columns but the last two
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "cause": CAUSE,
        "activity": HOST_ACTIVITY,
        "name": pl.String,
        "time_ns": pl.Int64,
        "count": pl.Int64,
    },
    name="BUBBLE_HOSTS",
)

PART_FRAMES: Mapping[str, pl.Schema] = {
    "processes": PROCESSES,
    "gpus": GPUS,
    "devices": DEVICES,
    "ranks": RANKS,
    "coordinates": COORDINATES,
    "anchors": ANCHORS,
    "row_counts": ROW_COUNTS,
    "mpi_messages": PART_MPI_MESSAGES,
    **REPORT_FRAMES,
    **AGGREGATE_FRAMES,
    # A part may lack these:
    "metric_windows": METRIC_WINDOWS,
    "metric_families": METRIC_FAMILIES,
    "network_windows": NETWORK_WINDOWS,
    "network_collectives": NETWORK_COLLECTIVES,
    "bubble_hosts": BUBBLE_HOSTS,
}


def _have(*columns: str) -> pl.Expr:
    return pl.all_horizontal(pl.col(*columns).is_not_null())


def _have_all_or_none(*columns: str) -> pl.Expr:
    return pl.sum_horizontal(pl.col(*columns).is_null()).is_in([0, len(columns)])


_DEVICE = ("process_key", "device_id")
_IN_ORDER = pl.col("start_ns") <= pl.col("end_ns")
_SPAN = _have(*_DEVICE, "start_ns", "end_ns") & _IN_ORDER
_DISTRIBUTION = (
    _have("process_key", "squares")
    & (pl.col("count") == pl.col("value_counts").list.sum())
    & (pl.col("values").list.len() == pl.col("value_counts").list.len())
)
# What holds in each row, by frame: readers of parts rely on it.
ROW_RULES: Mapping[str, pl.Expr] = {
    "processes": _have("process_key", "pid"),
    "devices": _have(*_DEVICE, "gpu", "is_recorded"),
    "ranks": _have("rank", "rank_source"),
    "coordinates": _have("process_key"),
    "anchors": _have("process_key", "kind", "start_ns", "end_ns") & _IN_ORDER,
    "row_counts": _have("stage", "table", "row_count"),
    "mpi_messages": _have("process_key", "thread_key", "is_send", "start_ns"),
    "jobs": _have("process_key", "thread_key", "kind", "host_start_ns", "host_end_ns", "is_open")
    & _have_all_or_none("start_ns", "end_ns")
    & _have_all_or_none("compute_start_ns", "compute_end_ns", "compute_ns"),
    "steps": _SPAN & _have("step", "is_numbered", "source", "is_partial", "first_op_ns", "last_op_ns"),
    "batches": _SPAN
    & _have("step", "busy_ns", "kernel_ns", "graph_ns", "launch_count", "graph_launch_count"),
    "compute_segments": _SPAN & _have("compute_ns", "op_count"),
    "waits": _SPAN & _have("step") & (pl.col("cause").is_null() != pl.col("need").is_null()),
    "gaps": _SPAN,
    "messages": _SPAN & _have("op_id"),
    "kernels": _have(*_DEVICE, "kind", "is_communication", "count", "total_ns", "min_ns", "max_ns"),
    "overheads": _have(*_DEVICE, "is_of_profiler", "time_ns", "count", "beside_ns"),
    "op_aggregates": _DISTRIBUTION & _have("device_id", "kind", "is_communication", "least", "most"),
    "copy_sizes": _DISTRIBUTION & _have("device_id", "kind", "least", "most"),
    "call_aggregates": _DISTRIBUTION & _have("api", "least", "most"),
    "item_aggregates": _DISTRIBUTION & _have("item", "measure", "least", "most"),
    "collective_aggregates": _DISTRIBUTION & _have("device_id", "least", "most"),
    "gpu_times": _have(*_DEVICE, "span_ns", "busy_ns", "kernel_ns", "compute_ns", "communication_ns"),
    "host_times": _have("process_key", "activity", "count", "union_ns"),
    "idle_times": _have(*_DEVICE, "cause", "count", "total_ns"),
    "launch_aggregates": _DISTRIBUTION & _have("device_id", "short_count", "queued_ns"),
    "memory_aggregates": _have(*_DEVICE, "allocated_bytes", "freed_bytes"),
    "memory_peaks": _have(*_DEVICE, "peak_bytes"),
    "job_memory_peaks": _have(*_DEVICE, "peak_bytes"),
    "metric_windows": _have("gpu", "metric", "time_ns", "value", "peak"),
    "metric_families": _have(*_DEVICE, "metric", "family", "integral", "time_ns", "peak"),
    "network_windows": _have("source", "direction", "start_ns", "end_ns", "bytes_per_ns"),
    "network_collectives": _have("start_ns", "size_bytes"),
    "bubble_hosts": _have(*_DEVICE, "step", "cause", "count"),
}
