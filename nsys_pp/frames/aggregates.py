"""The frames of a summary: what one report adds to the tables of a run, without its events.

Every frame has a row per process (and device) and step, so that whoever puts reports together can
choose steps, ranks, machines and stages afterwards, and reads no event again. Times that several
things share (the union of all kernels, say) are measured per device, or per process on the CPU, and
per step, because these lie side by side: their sums are right, and nothing is counted twice.

`step` is that of `nsys_pp.frames.training.STEPS`; null outside all steps. `device_id` is null for what
happened on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME, OP_KIND, RANGE_KIND
from nsys_pp.frames.training import JOB_KIND

MOST_VALUES = 8192
"""Different values that a row tells exactly; of more, nine binary digits of each are kept (an error below 0.1 %)."""

DISTRIBUTION: Mapping[str, pl.DataType | type[pl.DataType]] = {
    # how values are spread: nanoseconds unless the frame says bytes
    "count": pl.Int64,
    "total": pl.Int64,
    "least": pl.Int64,
    "most": pl.Int64,
    "squares": pl.Float64,  # sum of the squares of their distances to their mean
    "values": pl.List(pl.Int64),  # the different values, ascending; if more than MOST_VALUES, rounded
    "value_counts": pl.List(pl.Int64),  # how often each is there
}
_DEVICE: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "process_key": pl.Int64,
    "device_id": pl.Int32,
    "step": pl.Int64,
}
_PROCESS: Mapping[str, pl.DataType | type[pl.DataType]] = {"process_key": pl.Int64, "step": pl.Int64}

OP_AGGREGATES = build_schema(
    {  # operations on GPUs; an operation is in the step in which it starts on its device
        **_DEVICE,
        "kind": OP_KIND,
        "name": NAME,  # of kernels demangled, with parameters, where recorded: as `nsys stats` shows it
        "base_name": NAME,  # short: that of GPU_OPS
        "is_communication": pl.Boolean,
        **DISTRIBUTION,  # durations
    },
    name="OP_AGGREGATES",
)

COPY_SIZES = build_schema(
    {  # bytes of copies and sets, where recorded
        **_DEVICE,
        "kind": OP_KIND,
        "name": NAME,
        **DISTRIBUTION,  # bytes
    },
    name="COPY_SIZES",
)

CALL_API = pl.Enum(["cuda", "os"])
CALL_AGGREGATES = build_schema(
    {  # calls on the CPU; a call is in the step in which it starts on the CPU
        **_PROCESS,
        "api": CALL_API,
        "name": NAME,
        **DISTRIBUTION,  # durations
    },
    name="CALL_AGGREGATES",
)

NAMED_OPERATORS = build_schema(
    {  # ranges that are operators of a framework, or communication by their names; by range_id
        "range_id": pl.Int64,
        "name": NAME,  # of the operator, numbers that only tell calls apart left out; null: it is none
        "is_communication": pl.Boolean,
    },
    name="NAMED_OPERATORS",
)

ITEM = pl.Enum(["range", "operator", "phase"])
MEASURE = pl.Enum(["host", "span", "gpu"])
ALL_JOBS = "jobs"
"""Name of the phase that is all jobs together."""
ITEM_AGGREGATES = build_schema(
    {  # NVTX ranges by name, operators of a framework, and phases of training (jobs by kind)
        **_DEVICE,  # device_id is null for measure "host"
        "item": ITEM,
        # "host": time on the CPU. "span": from the first start to the last end of its operations, as
        # NVIDIA's `nvtx_gpu_proj_sum` has it. "gpu": sum of the durations of its operations, as Paddle's
        # tables have it.
        "measure": MEASURE,
        "style": RANGE_KIND,  # of ranges
        "domain": NAME,  # of ranges; null for the default domain
        "name": NAME,  # of phases: the kind of job, ALL_JOBS, or "step"; null where a range has no name
        "inner": NAME,  # operators: the operator inside it; null for itself
        "kernel": NAME,  # operators: base name of an operation that it (or the inner one) launched
        # calls that launched its operations; null for measure "host", kernels and phases. No table of ours shows
        # it; NVIDIA's `nvtx_gpu_proj_sum` does, and calls it operations.
        "call_count": pl.Int64,
        **DISTRIBUTION,  # durations
    },
    name="ITEM_AGGREGATES",
)

COLLECTIVE_AGGREGATES = build_schema(
    {  # kernels of communication, by what they were asked to do
        **_DEVICE,
        "call": pl.String,  # "AllReduce", "Send"; null where nothing tells
        "size_bytes": pl.Int64,  # as NCCL was told: of one rank's contribution; null where not recorded
        "rank_count": pl.Int64,  # of the communicator; null where not recorded
        **DISTRIBUTION,  # durations
    },
    name="COLLECTIVE_AGGREGATES",
)

GPU_TIMES = build_schema(
    {  # how long each kind of work ran on a device: unions of intervals, cut at the borders of steps
        **_DEVICE,  # one row per step; one with step null for what lies before, between and after them
        # of the step; without a step, of all from the first to the last event of the process, less steps
        "span_ns": pl.Int64,
        "busy_ns": pl.Int64,  # anything
        "kernel_ns": pl.Int64,  # kernels, and graphs traced as a whole
        "compute_ns": pl.Int64,  # kernels that are not communication
        "communication_ns": pl.Int64,  # kernels that are
        "overlap_ns": pl.Int64,  # both at once
        "memcpy_ns": pl.Int64,
        "memset_ns": pl.Int64,
        # as Paddle counts: communication on the CPU (ranges) or on the device
        "any_communication_ns": pl.Int64,
        "any_overlap_ns": pl.Int64,  # that at once with `compute_ns`
    },
    name="GPU_TIMES",
)

ACTIVITY = pl.Enum(
    [
        "span",  # of the step on the CPU; without steps, from the first to the last event of the process
        "range",  # inside any NVTX range but those that NCCL itself makes
        "operator",
        *("forward", "backward", "optimizer", "data"),  # outermost jobs of these kinds
        "communication",  # ranges of NCCL, and ranges whose names say so
        "cuda",  # inside calls of CUDA
        "sync",  # inside calls of CUDA that wait for the GPU
        "os",  # inside calls of the operating system
        "cpu",  # on a processor: summed over threads
    ]
)
HOST_TIMES = build_schema(
    {  # how long each kind of thing went on in a process on the CPU, cut at the borders of steps
        **_PROCESS,
        "activity": ACTIVITY,
        "count": pl.Int64,  # of those that began in the step
        "union_ns": pl.Int64,  # across threads; of "cpu": summed over them
    },
    name="HOST_TIMES",
)

IDLE_CAUSE = pl.Enum(
    [
        "edges",  # before the first operation, after the last
        "host_late",  # the call that launched the next operation began after the gap had begun
        "kernel_wait",  # a gap so short that one kernel just follows the other
        "other",  # launched in time: it waited for a stream, an event, or another process
        "unknown",  # nothing is known of the launch
    ]
)
KERNEL_WAIT_NS = 30
"""Gaps shorter than this are "kernel_wait": HolisticTraceAnalysis' threshold."""
IDLE_TIMES = build_schema(
    {  # gaps in which a device, or a stream of it, ran nothing; cut at the borders of steps
        **_DEVICE,
        "stream_id": pl.Int64,  # null: the device as a whole, whose causes add up to span_ns - busy_ns
        "cause": IDLE_CAUSE,
        "count": pl.Int64,  # of those that began in the step
        "total_ns": pl.Int64,
        "most_ns": pl.Int64,  # the longest that began in it, whole; null where none did
    },
    name="IDLE_TIMES",
)

LAUNCH_AGGREGATES = build_schema(
    {  # from the start of the call that launched an operation to the operation; kernels and graphs
        **_DEVICE,
        "short_count": pl.Int64,  # shorter than the call that launched them
        "slow_call_count": pl.Int64,  # whose call took longer than SLOW_CALL_NS
        "late_count": pl.Int64,  # that began later than LATE_NS after the call
        # from the start of the call to the end of the operation: by the span, the mean length of the queue
        "queued_ns": pl.Int64,
        "queue_most": pl.Int64,  # operations called for and not finished, at most
        **DISTRIBUTION,  # delays
    },
    name="LAUNCH_AGGREGATES",
)
SLOW_CALL_NS = 50_000  # HolisticTraceAnalysis' cut-offs
LATE_NS = 100_000

MEMORY_AGGREGATES = build_schema(
    {  # allocations, where recorded
        **_DEVICE,
        "kind": pl.String,  # "device", "managed", "pinned", ...
        "name": NAME,  # innermost job, or else range, around the call; null outside all
        "job": JOB_KIND,  # kind of the innermost job around it
        "allocation_count": pl.Int64,
        "free_count": pl.Int64,
        "allocated_bytes": pl.Int64,
        "freed_bytes": pl.Int64,
    },
    name="MEMORY_AGGREGATES",
)
MEMORY_PEAKS = build_schema(
    {  # most memory in use since the capture began, of what was allocated in it
        **_DEVICE,
        "kind": pl.String,
        "peak_bytes": pl.Int64,  # within the step
    },
    name="MEMORY_PEAKS",
)

AGGREGATE_FRAMES: Mapping[str, pl.Schema] = {
    "op_aggregates": OP_AGGREGATES,
    "copy_sizes": COPY_SIZES,
    "call_aggregates": CALL_AGGREGATES,
    "item_aggregates": ITEM_AGGREGATES,
    "collective_aggregates": COLLECTIVE_AGGREGATES,
    "gpu_times": GPU_TIMES,
    "host_times": HOST_TIMES,
    "idle_times": IDLE_TIMES,
    "launch_aggregates": LAUNCH_AGGREGATES,
    "memory_aggregates": MEMORY_AGGREGATES,
    "memory_peaks": MEMORY_PEAKS,
}

PLACES = build_schema(
    {  # whose sums they are: one row per GPU process, and one per process without a GPU; in natural order
        "place": pl.UInt32,  # 0, 1, ...
        "report": pl.UInt32,  # place among the reports
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null: the process used no GPU
        "machine": pl.String,
        "gpu": pl.String,  # null: none
        "stage": pl.Int64,
        "label": pl.String,  # unique: "rank 3"; "node2 GPU 0" where no rank is known; "node2 pid 71"
    },
    name="PLACES",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The sums of all reports.

    Attributes:
        places: `PLACES`.
        frames: Those of `AGGREGATE_FRAMES` with `place` instead of process_key and device_id, and with the numbers
            of steps of the whole run. What a process did on the CPU stands at the first of its places;
            measures of the CPU and of GPUs are told apart by the frame or by its `measure`.
        recorded: Per report, our names of what it has rows of.
    """

    places: pl.DataFrame
    frames: Mapping[str, pl.DataFrame]
    recorded: tuple[frozenset[str], ...]
