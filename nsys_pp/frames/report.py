"""Frames of one report: events, identity, and what is read on request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.conform import NAME, build_schema
from nsys_pp.frames.raw import ROW_COUNTS

ACTIVITIES = build_schema(
    {  # one row per interval or instant, by row, thread_key and start_ns
        # its row in the trace: "OS calls", "states", "MPI", the name of an unknown table
        "row": pl.Categorical(),
        "process_key": pl.Int64,  # null: of the system
        "thread_key": pl.Int64,  # null: of the process
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,  # null: an instant, or an interval without a recorded end
        "name": NAME,
        "size_bytes": pl.Int64,
        "peer": pl.Int64,  # rank, or worker of UCX
        "tag": pl.Int64,
        "stream_id": pl.Int64,
        "cpu": pl.Int64,
        "address": pl.Int64,  # of memory
        "count": pl.Int64,  # events that it stands for: page faults
        "detail": NAME,  # kind of memory; text of an event of an unknown table
        "event_id": pl.Int64,  # CUDA event that a call records or waits for
        "stack": NAME,  # functions of a sample, the innermost first
        # number of the record of an event: of its call, and of calls that wait for it; null without arrow
        "link": pl.Int64,
        "is_origin": pl.Boolean,  # the activity is that call; null without a link
    },
    name="ACTIVITIES",
)


PAGEABLE_COPIES = build_schema(
    {  # one row per call that copies from or to pageable memory of the host
        "process_key": pl.Int64,
        "correlation_id": pl.Int64,
    },
    name="PAGEABLE_COPIES",
)

EXPORTED_TABLES = build_schema(
    {  # one row per table of the export but enumerations, by use, show and name
        "table": pl.String,  # its name there
        # The first that fits: drawn in traces at some level of detail; drawn with `--show`; read for tables
        # of results; only its rows are counted; names and facts; not read.
        "use": pl.Enum(["drawn", "on request", "summed", "counted", "facts", "unknown"]),
        "show": pl.String,  # kinds of `--show` that draw it: "os", "metrics,other"; null without one
        "sums": pl.String,  # table of results with sums of it: "summary --table os"; null without one
        "row_count": pl.Int64,
    },
    name="EXPORTED_TABLES",
)


OP_DETAILS = build_schema(
    {  # one row per distinct set of details
        "full_name": pl.Categorical(),  # demangled with its parameter list; null where equal to name
        "grid": pl.Categorical(),  # "x,y,z"; null unless a kernel
        "block": pl.Categorical(),  # "x,y,z"; null unless a kernel
        "registers_per_thread": pl.Int32,
        "static_shared_bytes": pl.Int64,
        "dynamic_shared_bytes": pl.Int64,
        "size_bytes": pl.Int64,  # copies and sets
    },
    name="OP_DETAILS",
)


class OpDetails(Struct, frozen=True, kw_only=True):
    """Details of the operations of a report.

    Attributes:
        distinct: `OP_DETAILS`.
        row: Row of `distinct` of each operation: item i belongs to op_id i. Empty unless details were read.
    """

    distinct: pl.DataFrame = field(default_factory=OP_DETAILS.to_frame)
    row: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))

    def gather(self, column: str, op_id: pl.Series) -> pl.Series:
        """Return a column of the details of some operations; nulls if details were not read."""
        if not len(self.row):
            return self.distinct[column].clear().extend_constant(None, len(op_id))
        return self.distinct[column][pl.Series(self.row[op_id.to_numpy()])]  # without a query


OVERHEADS = build_schema(
    {  # one row per interval, any order
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,  # "CUPTI Buffer flush"; null where unknown
        # false: CUDA or the program loads or compiles code, or launches are too many
        "is_of_profiler": pl.Boolean,
    },
    name="OVERHEADS",
)

OVERHEAD_SUMS = build_schema(
    {  # overhead of the threads that launch on a device, one row per step and name; any order
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`; null outside all steps
        "name": pl.String,  # null: all of the profiler, of which several may be at once
        "is_of_profiler": pl.Boolean,
        "time_ns": pl.Int64,
        "count": pl.Int64,  # intervals that began in the step
        "step_ns": pl.Int64,  # length of the step; null outside
        # Of flushes on other threads of the process: the part in which the device waited for a thread that
        # was inside a CUDA call.
        "beside_ns": pl.Int64,
    },
    name="OVERHEAD_SUMS",
)

# Pattern of the names of overhead in which CUDA loads or compiles code.
LOADING = r"(?i)\b(?:function|module) loading\b|\bjit\b|compil"
METRIC_VALUES = build_schema(
    {  # one row per sample, by time_ns; a value is valid until the next sample
        "time_ns": pl.Int64,
        "value": pl.Float64,
    },
    name="METRIC_VALUES",
)

_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")  # "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]"
_OVERVIEW = (
    re.compile(r"SMs? Active\b"),
    re.compile(r"Tensor Active\b"),
    re.compile(r"DRAM Read\b"),
    re.compile(r"DRAM Write\b"),
)
_CLOCK = re.compile(r"GPC Clock\b")


class SampledMetric(Struct, frozen=True, kw_only=True):
    """Samples of one metric of one GPU, network card or switch.

    Attributes:
        process_key: First process that uses the GPU; None: a metric of the system.
        device_id: CUDA ordinal in that process; None: a metric of the system.
        gpu: "GPU 0", numbered among the GPUs of the report; None: not of a GPU.
        bus: Bus location of the GPU, in lower case; None: unknown.
        metric: Name as recorded: "SMs Active [Throughput %]", "IB: Bytes sent".
        name: Name of its row: with its GPU, card or switch, if that is not the owner of the row.
        unit: "%", "MHz", "B/ms", ...; "" where unknown.
        samples: `METRIC_VALUES`.
        ends_ns: End of the interval of each sample; None: each is valid until the next one.
        source: "network card", "IB switch" or "SoC"; "": a GPU.
        owner: Name of the card or switch; "": a GPU, or the system on a chip.
        port: Number of its port; "": not recorded.
    """

    process_key: int | None = None
    device_id: int | None = None
    gpu: str | None = None
    bus: str | None = None
    metric: str
    name: str
    unit: str
    samples: pl.DataFrame
    ends_ns: pl.Series | None = None
    source: str = ""
    owner: str = ""
    port: str = ""


def parse_unit(metric: str) -> str:
    """Return the unit in brackets at the end of the name of a metric.

    A share of the peak throughput is in percent.

    >>> names = "SMs Active [Throughput %]", "GPC Clock Frequency [MHz]", "SM Active"
    >>> tuple(map(parse_unit, names))
    ('%', 'MHz', '')
    """
    match = _UNIT.search(metric)
    unit = match[1] if match else ""
    return "%" if unit.endswith("%") else unit


def drop_unit(metric: str) -> str:
    """Return the name of a metric without its unit.

    >>> drop_unit("DRAM Read Bandwidth [Throughput %]")
    'DRAM Read Bandwidth'
    """
    return _UNIT.sub("", metric)


def is_of_overview(metric: str) -> bool:
    """Return whether a metric is in the overview of utilisation.

    Shares of active SMs, of tensor cores and of memory bandwidth.

    >>> names = "Tensor Active / FP16 Active [Throughput %]", "SM Issue [Throughput %]"
    >>> tuple(map(is_of_overview, names))
    (True, False)
    """
    return parse_unit(metric) in ("%", "") and any(pattern.match(metric) for pattern in _OVERVIEW)


def rank_metric(metric: str) -> int:
    """Return the rank of a metric in tables.

    Metrics of the overview come first, then clocks, then all others.

    >>> rank_metric("SM Active"), rank_metric("DRAM Read Bandwidth [Throughput %]"), rank_metric("SM Issue")
    (0, 2, 5)
    """
    first = (*_OVERVIEW, _CLOCK)
    return next((rank for rank, pattern in enumerate(first) if pattern.match(metric)), len(first))


def is_clock(metric: str) -> bool:
    """Return whether a metric is the clock of the SMs.

    >>> is_clock("GPC Clock Frequency [MHz]"), is_clock("SYS Clock Frequency [MHz]")
    (True, False)
    """
    return _CLOCK.match(metric) is not None


MPI_MESSAGES = build_schema(
    {  # one row per send or receive between two ranks; by start_ns
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "name": NAME,  # "MPI_Isend"
        "is_send": pl.Boolean,
        "communicator": pl.String,  # the same on all of its ranks; null where unknown
        "rank": pl.Int64,  # of the process, in the communicator
        "member_count": pl.Int64,
        # rank in the communicator: receiver of a send, sender of a receive; null: any sender
        "peer": pl.Int64,
        "tag": pl.Int64,  # null: any
        "size_bytes": pl.Int64,  # of a receive that does not wait: of its buffer
        "has_size": pl.Boolean,  # size_bytes is that of the message
        "is_whole": pl.Boolean,  # all messages of the process since the start of MPI were recorded before it
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,  # of the call that waits for it; null without one
    },
    name="MPI_MESSAGES",
)


Severity = Literal["info", "warning", "error"]
# Severities, the least first.
# * info: a count; results are not affected.
# * warning: some results lack rows, or are less certain.
# * error: the file is damaged or cannot be read: no result of it can be trusted.
SEVERITY = pl.Enum(get_args(Severity))

FINDINGS = build_schema(
    {  # one row per finding, in order of reports; of each report the most severe first
        "report": pl.String,  # path as named or found
        "severity": SEVERITY,
        "kind": pl.String,  # stable: "integrity", "rows left out", "lost events", ...
        "count": pl.Int64,  # rows, or complaints
        "text": pl.String,  # one sentence
        "meaning": pl.String,  # for the analyses, one sentence
    },
    name="FINDINGS",
)


class Finding(Struct, frozen=True, kw_only=True):
    """One finding about a report."""

    severity: Severity
    kind: str
    text: str
    meaning: str
    count: int = 1


def build_findings(findings: dict[str, list[Finding]]) -> pl.DataFrame:
    """Build `FINDINGS` from the findings of each report, by path."""
    order = {severity: -rank for rank, severity in enumerate(get_args(Severity))}
    rows = [
        (path, finding.severity, finding.kind, finding.count, finding.text, finding.meaning)
        for path, of_report in findings.items()
        for finding in sorted(of_report, key=lambda finding: order[finding.severity])
    ]
    return pl.DataFrame(rows, schema=FINDINGS, orient="row")


RANGE_KIND = pl.Enum(["push_pop", "start_end"])
OP_KIND = pl.Enum(["kernel", "memcpy", "memset", "graph"])
# Kinds of operations that count as kernels: a graph that was traced as a whole counts for its kernels.
KERNEL_KINDS = ("kernel", "graph")
# Longest time by which errors of clocks let an operation start before the call that launched it. More is no
# delay.
MOST_EARLY_NS = 60_000

# Names of CUDA calls that launch a kernel, or a graph.
KERNEL_LAUNCH, GRAPH_LAUNCH = r"^cu(?:da)?Launch(?:Cooperative)?Kernel", r"^cu(?:da)?GraphLaunch"

# Names of NCCL's kernels, and those like them, that send and receive messages.
POINT_TO_POINT = r"(?i)send_?recv"

# Names of CUDA calls that wait for the GPU: synchronising calls, and synchronous copies from or to the CPU.
# `cudaStreamWaitEvent` is not included: the stream waits, not the CPU. Other calls may wait too (`cudaFree`,
# asynchronous copies of pageable memory), but not always.
WAITING_CALL = (
    r"Synchronize"
    r"|^cu(?:da)?Memcpy(?:2D|3D)?(?:Unaligned|HtoD|DtoH|HtoA|AtoH|(?:To|From)(?:Array|Symbol))?"
    r"(?:_v\d+)?(?:_ptds)?$"
)

RANGES = build_schema(
    {  # one row per NVTX range, in order of range_id
        "range_id": pl.Int64,  # row id in the exported table of NVTX events
        "kind": RANGE_KIND,
        "process_key": pl.Int64,
        "thread_key": pl.Int64,  # of the thread that began it
        "end_thread_key": pl.Int64,  # null unless the range ended on another thread
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_open": pl.Boolean,  # open at the end of the capture; end_ns is that end
        "domain": NAME,  # null for the default domain
        "name": NAME,  # null for ranges without a message
        "category": NAME,  # null without one; its number as text if it has no name
        "color_argb": pl.UInt32,  # null without one
        "payload": pl.String,  # numbers in decimal, JSON unchanged; null without one
    },
    name="RANGES",
)

MARKS = build_schema(
    {  # one row per NVTX mark, in order of mark_id
        "mark_id": pl.Int64,  # row id in the exported table of NVTX events
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "time_ns": pl.Int64,
        "domain": NAME,
        "name": NAME,
        "category": NAME,
        "color_argb": pl.UInt32,
        "payload": pl.String,
    },
    name="MARKS",
)

API_CALLS = build_schema(
    {  # one row per CUDA runtime or driver call, any order
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "correlation_id": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": NAME,
    },
    name="API_CALLS",
)

STREAM_CALLS = build_schema(
    {  # one row per CUDA call with a recorded stream or event, any order
        "process_key": pl.Int64,
        "correlation_id": pl.Int64,
        "context_id": pl.Int32,
        # that waits, is waited for, or records the event; null where no single one does
        "stream_id": pl.Int64,
        "event_id": pl.Int64,  # null without one
        # of the record of the event; null without an event, and in exports before 2025
        "record_id": pl.Int64,
        "is_record": pl.Boolean,  # it records the event; else it waits
    },
    name="STREAM_CALLS",
)

OS_CALLS = build_schema(
    {  # one row per traced call of the operating system, any order
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": NAME,
    },
    name="OS_CALLS",
)

DIAGNOSTICS = build_schema(
    {  # one row per message of nsys about the recording; errors first, then by text
        "severity": pl.Enum(["error", "warning"]),
        "text": pl.String,
        "count": pl.Int64,
    },
    name="DIAGNOSTICS",
)

THREAD_RUNS = build_schema(
    {  # one row per run of a thread on a processor, without overlaps; by thread_key, start_ns
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="THREAD_RUNS",
)

MEMORY_EVENTS = build_schema(
    {  # one row per allocation or release of memory by CUDA, by time_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "correlation_id": pl.Int64,  # of the call; null if none was recorded
        "time_ns": pl.Int64,
        "kind": pl.String,  # "device", "managed", "pinned", ...; null where unknown
        "is_release": pl.Boolean,
        "address": pl.UInt64,
        "size_bytes": pl.Int64,
    },
    name="MEMORY_EVENTS",
)

COUNTERS = build_schema(
    {  # one row per sample of a counter, by name and time_ns; a value is valid until the next sample
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null: a counter of the process on the CPU; without a process, of the system
        "name": pl.String,
        "unit": pl.String,  # "%", "count", "bytes", "ns", "W", ...
        "time_ns": pl.Int64,
        "value": pl.Float64,
    },
    name="COUNTERS",
)

GPU_OPS = build_schema(
    {  # one row per operation on a GPU, kernels first; op_id is the row's index
        "op_id": pl.UInt32,
        "kind": OP_KIND,
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # CUDA ordinal within the process
        "context_id": pl.Int32,
        "stream_id": pl.Int64,
        "correlation_id": pl.Int64,  # null if none was recorded
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": NAME,  # short kernel name, "Memcpy HtoD", "Memset", "CUDA graph 7"
        "is_communication": pl.Boolean,  # NCCL, RCCL, HCCL, NVSHMEM, MSCCL
        "graph_id": pl.Int64,  # CUDA graph (or graph node) of the operation; null outside graphs
    },
    name="GPU_OPS",
)

PROCESSES = build_schema(
    {  # processes with events of CUDA or NVTX, by process_key
        "process_key": pl.Int64,
        "pid": pl.Int64,
        "name": pl.String,
    },
    name="PROCESSES",
)

THREADS = build_schema(
    {  # threads with events of CUDA or NVTX, by thread_key
        "thread_key": pl.Int64,
        "process_key": pl.Int64,
        "tid": pl.Int64,
        "name": pl.String,  # null where unknown
    },
    name="THREADS",
)

DEVICES = build_schema(
    {  # one row per process and CUDA ordinal with operations, by both
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "gpu": pl.String,  # one label per physical GPU in the report: "GPU 0", "GPU 1"; natural order
        "name": pl.String,  # "NVIDIA H100 ..."; null where unknown
        "uuid": pl.String,
        "bus_location": pl.String,
        "is_recorded": pl.Boolean,  # the report identifies the GPU; else only its ordinal is known
    },
    name="DEVICES",
)

GPUS = build_schema(
    {  # one row per GPU in the report, used or not, by bus location
        "uuid": pl.String,  # lower case, without "GPU-"; null where unknown
        "bus_location": pl.String,
        "name": pl.String,
    },
    name="GPUS",
)

STREAMS = build_schema(
    {  # known streams; streams with operations may be missing
        "process_key": pl.Int64,
        "context_id": pl.Int32,
        "stream_id": pl.Int64,
        "name": pl.String,  # from NVTX; null without one
        "priority": pl.Int64,
        "is_default": pl.Boolean,
    },
    name="STREAMS",
)

LAUNCHES = build_schema(
    {  # one row per pair of API call and GPU operation, by op_id
        "op_id": pl.UInt32,
        "call_row": pl.UInt32,  # row of API_CALLS
    },
    name="LAUNCHES",
)

PROJECTIONS = build_schema(
    {  # one row per range and device (and stream), by those keys
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "device_id": pl.Int32,
        "stream_id": pl.Int64,  # null unless projected per stream
        "range_id": pl.Int64,
        "parent_id": pl.Int64,  # range_id of the innermost range around it; null at the top
        "depth": pl.Int32,  # number of ranges around it on its thread
        "domain": NAME,
        "name": NAME,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "gpu_start_ns": pl.Int64,
        "gpu_end_ns": pl.Int64,
        "busy_ns": pl.Int64,  # union of its operations on that device (and stream)
        "total_ns": pl.Int64,  # sum of their durations: more than busy_ns where they overlap
        "call_count": pl.Int64,  # distinct launching calls
        "op_count": pl.Int64,
        "first_op": NAME,  # first operation by start
        "last_op": NAME,  # last operation by end
        "scope": pl.Enum(["thread", "process"]),  # of the counted calls
        "is_open": pl.Boolean,
    },
    name="PROJECTIONS",
)


NCCL_CALLS = build_schema(
    {  # payloads of NCCL's own NVTX ranges, by range_id
        "range_id": pl.Int64,
        "communicator": pl.UInt64,  # NCCL's id, the same on all of its ranks
        "rank": pl.Int64,  # within the communicator; only of its creation (ncclCommInitRank)
        "rank_count": pl.Int64,  # likewise
        "peer": pl.Int64,  # rank within the communicator: receiver of a send, sender of a receive
        "size_bytes": pl.Int64,
    },
    name="NCCL_CALLS",
)

REQUESTS = build_schema(
    {  # requests of the program to NCCL, by op_id of the operation of NCCL, then by order of the requests
        "op_id": pl.UInt32,  # of GPU_OPS
        "call": pl.String,  # "Send", "Recv", "AllReduce"
        "communicator": pl.UInt64,  # null without a recorded payload, like all further columns but the time
        "rank": pl.Int64,  # within the communicator; null unless it was created during the capture
        "peer": pl.Int64,  # rank within the communicator; null in collectives
        "size_bytes": pl.Int64,
        "start_ns": pl.Int64,  # of the range around the request, on the CPU
    },
    name="REQUESTS",
)

MPI_CALLS = build_schema(
    {  # one row per message or collective of MPI, by start_ns
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "name": NAME,  # "MPI_Allreduce"
        "is_collective": pl.Boolean,
        "communicator": pl.Int64,  # handle; not comparable between ranks
        "member_count": pl.Int64,  # ranks of the communicator; null where unknown
        "peer": pl.Int64,  # receiver of a send, sender of a receive; null in collectives
        "tag": pl.Int64,
        "size_bytes": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="MPI_CALLS",
)

RANKS = build_schema(
    {  # ranks of processes in one report; by process and device
        "process_key": pl.Int64,  # null: the only process
        "device_id": pl.Int32,  # null: any device of the process
        "rank": pl.Int64,
        "rank_source": pl.String,  # "MPI", "NCCL", "RANK", "XLA", "file name", ...
        "world_size": pl.Int64,  # null where unknown
    },
    name="RANKS",
)


class Session(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about one recording.

    `utc = event_ns - time_shift_ns + utc_epoch_ns` holds for every event
    (`time_shift_ns` is the total shift that the exporter applied).
    """

    nsys_version: str | None = None  # of the exporter, "2023.4.4.54"
    schema_version: str | None = None  # "3.7.2"; None in exports of 2019 and 2020
    driver_version: str | None = None  # of the GPU driver, as nsys writes it: "550.90.07", "5154304"
    cuda_version: str | None = None  # the newest CUDA that the driver supports: "12.4"
    hostname: str | None = None
    hardware_id: str | None = None
    machine: str  # hostname, else hardware id, else its `machine*` folder, else the file's name
    machine_source: str  # "hostname", "hardware id", "folder" or "file name"
    utc_epoch_ns: int | None = None  # UTC at the start of the session
    system_clock_ns: int | None = None  # CLOCK_MONOTONIC at the start of the session
    # UTC at 0 of the clock by which nsys records the starts of captures: equal, to some nanoseconds, in all
    # captures of one nsys session; two sessions read UTC separately
    origin_ns: int | None = None
    time_shift_ns: int = 0
    capture_end_ns: int | None = None  # end of the valid window, on the report's clock
    graph_mode: str | None = None  # "Graph" or "Node", where recorded
    # allow-listed launcher variables only: others may contain secrets
    launcher: dict[str, str] = field(default_factory=dict)
    rank: int | None = None
    rank_source: str | None = None  # "MPI", "RANK", ...


class Report(Struct, frozen=True, kw_only=True):
    """A report: its session and its frames (schemas above).

    Frames of missing tables are empty; `recorded` distinguishes "not recorded" (absent) from "recorded,
    without events" (present).
    """

    path: Path
    session: Session
    fingerprint: int  # equal for all exports of one recording
    # name of each table of the report -> number of rows, where counted
    recorded: dict[str, int] = field(default_factory=dict)
    exported_tables: pl.DataFrame = field(default_factory=EXPORTED_TABLES.to_frame)
    processes: pl.DataFrame = field(default_factory=PROCESSES.to_frame)
    threads: pl.DataFrame = field(default_factory=THREADS.to_frame)
    gpus: pl.DataFrame = field(default_factory=GPUS.to_frame)
    # without operations, those with CUDA contexts
    devices: pl.DataFrame = field(default_factory=DEVICES.to_frame)
    streams: pl.DataFrame = field(default_factory=STREAMS.to_frame)
    ranks: pl.DataFrame = field(default_factory=RANKS.to_frame)
    ranges: pl.DataFrame = field(default_factory=RANGES.to_frame)
    marks: pl.DataFrame = field(default_factory=MARKS.to_frame)
    api_calls: pl.DataFrame = field(default_factory=API_CALLS.to_frame)
    stream_calls: pl.DataFrame = field(default_factory=STREAM_CALLS.to_frame)
    gpu_ops: pl.DataFrame = field(default_factory=GPU_OPS.to_frame)
    # empty unless their group was read
    op_details: OpDetails = field(default_factory=OpDetails)
    nccl_calls: pl.DataFrame = field(default_factory=NCCL_CALLS.to_frame)
    mpi_calls: pl.DataFrame = field(default_factory=MPI_CALLS.to_frame)
    mpi_messages: pl.DataFrame = field(default_factory=MPI_MESSAGES.to_frame)  # read on request
    os_calls: pl.DataFrame = field(default_factory=OS_CALLS.to_frame)
    thread_runs: pl.DataFrame = field(default_factory=THREAD_RUNS.to_frame)
    memory_events: pl.DataFrame = field(default_factory=MEMORY_EVENTS.to_frame)
    counters: pl.DataFrame = field(default_factory=COUNTERS.to_frame)
    diagnostics: pl.DataFrame = field(default_factory=DIAGNOSTICS.to_frame)
    overheads: pl.DataFrame = field(default_factory=OVERHEADS.to_frame)
    row_counts: pl.DataFrame = field(default_factory=ROW_COUNTS.to_frame)
    # read on request; processes and threads with activities need not be among those above
    activities: pl.DataFrame = field(default_factory=ACTIVITIES.to_frame)
    active_processes: pl.DataFrame = field(default_factory=PROCESSES.to_frame)
    active_threads: pl.DataFrame = field(default_factory=THREADS.to_frame)
    sampled_metrics: tuple[SampledMetric, ...] = ()  # of GPUs and the network
    pageable_copies: pl.DataFrame = field(default_factory=PAGEABLE_COPIES.to_frame)
