"""Sums and distributions that can be merged.

Aggregates of a report, their families, and the sums of a run.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import NAME, build_schema
from nsys_pp.frames.report import OP_KIND, RANGE_KIND
from nsys_pp.frames.training import JOB_KIND

FAMILIES = (
    "GEMM",  # products of matrices, also with vectors, and their parts (split-K)
    "attention",  # fused attention, and the masked softmax of attention that is not fused
    "convolution",
    "normalisation",
    "elementwise",  # activations, casts, dropout, rotary embeddings, random numbers
    "reduction",  # sums, maxima, softmax, losses
    "MoE routing",  # gates and permutations of mixtures of experts; their products are GEMMs
    "embedding",
    "optimizer",
    "communication",
    "copy",  # copies and sets; transposes, concatenations, gathers and scatters by kernels
    "layout",  # conversions between NCHW and NHWC and the like
    "graph",  # CUDA graphs that were traced as a whole
    "other",  # recognised, but none of these: sorts, scans, sampling, pooling, quantisation, FFT
    "unknown",  # no rule matches the name
)
FAMILY = pl.Enum(FAMILIES)
# Families with kernels that can use tensor cores.
MATRIX_FAMILIES = ("GEMM", "attention", "convolution")

KERNEL_FAMILIES = build_schema(
    {  # one row per name of a kernel, in the order of the names
        "name": NAME,
        "family": FAMILY,
        "library": pl.String,  # null where the name does not show it
        "tensor_cores": pl.Boolean,  # whether it uses tensor cores; null where the name does not show it
        "folded_name": NAME,  # without namespaces, template arguments, sizes and hashes
    },
    name="KERNEL_FAMILIES",
)

# Maximum number of distinct values of an exact distribution. Above it, values are rounded (an error below
# 0.1 %).
MOST_VALUES = 8192

DISTRIBUTION: Mapping[str, pl.DataType | type[pl.DataType]] = {
    # distribution of the values of a group: nanoseconds, or bytes where the frame has a comment
    "count": pl.Int64,
    "total": pl.Int64,
    "least": pl.Int64,
    "most": pl.Int64,
    "squares": pl.Float64,  # sum of squared deviations from the mean
    "values": pl.List(pl.Int64),  # distinct values, ascending; rounded if there are more than MOST_VALUES
    "value_counts": pl.List(pl.Int64),  # number of occurrences of each value
}
_DEVICE: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "process_key": pl.Int64,
    "device_id": pl.Int32,
    "step": pl.Int64,
}
_PROCESS: Mapping[str, pl.DataType | type[pl.DataType]] = {"process_key": pl.Int64, "step": pl.Int64}

OP_AGGREGATES = build_schema(
    {  # durations of GPU operations; an operation is in the step in which it starts on its device
        **_DEVICE,
        "kind": OP_KIND,
        "name": NAME,  # of kernels demangled, with parameters, where recorded: as `nsys stats` shows it
        "base_name": NAME,  # short name, as in GPU_OPS
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
    {  # durations of calls on the CPU; a call is in the step in which it starts
        **_PROCESS,
        "api": CALL_API,
        "name": NAME,
        **DISTRIBUTION,  # durations
    },
    name="CALL_AGGREGATES",
)

NAMED_OPERATORS = build_schema(
    {  # ranges that are operators of a framework, or communication (recognised by name); by range_id
        "range_id": pl.Int64,
        "name": NAME,  # of the operator, without numbers that differ from call to call; null: not an operator
        "is_communication": pl.Boolean,
    },
    name="NAMED_OPERATORS",
)

# Name of the phase of all jobs.
ALL_JOBS = "jobs"
ITEM_AGGREGATES = build_schema(
    {  # NVTX ranges by name, operators of a framework, and phases of training (jobs by kind)
        **_DEVICE,  # device_id is null for measure "host"
        "item": pl.Enum(["range", "operator", "phase"]),
        # "host": time on the CPU. "span": from the first start to the last end of its operations, as
        # NVIDIA's `nvtx_gpu_proj_sum` has it. "gpu": sum of the durations of its operations, as Paddle's
        # tables have it.
        "measure": pl.Enum(["host", "span", "gpu"]),
        "style": RANGE_KIND,  # of ranges
        "domain": NAME,  # of ranges; null for the default domain
        "name": NAME,  # of phases: the kind of job, ALL_JOBS, or "step"; null where a range has no name
        "inner": NAME,  # operators: the operator inside it; null for itself
        "kernel": NAME,  # operators: base name of an operation that it (or the inner one) launched
        # calls that launched its operations; null for measure "host", kernels and phases. No table of nsys-pp
        # shows it; NVIDIA's `nvtx_gpu_proj_sum` shows it as the number of operations.
        "call_count": pl.Int64,
        **DISTRIBUTION,  # durations
    },
    name="ITEM_AGGREGATES",
)

COLLECTIVE_AGGREGATES = build_schema(
    {  # durations of communication kernels, by call, size and communicator size
        **_DEVICE,
        "call": pl.String,  # "AllReduce", "Send"; null if unknown
        "size_bytes": pl.Int64,  # as passed to NCCL: the contribution of one rank; null where not recorded
        "rank_count": pl.Int64,  # of the communicator; null where not recorded
        **DISTRIBUTION,  # durations
    },
    name="COLLECTIVE_AGGREGATES",
)

GPU_TIMES = build_schema(
    {  # time of each kind of work on a device: unions of intervals, cut at the borders of steps
        **_DEVICE,  # one row per step; one with step null for the time outside all steps
        # length of the step; with step null, the time from the first to the last event of the process without
        # its steps
        "span_ns": pl.Int64,
        "busy_ns": pl.Int64,  # operations of any kind
        "kernel_ns": pl.Int64,  # kernels, and graphs traced as a whole
        "compute_ns": pl.Int64,  # kernels that are not communication
        "communication_ns": pl.Int64,  # communication kernels
        "overlap_ns": pl.Int64,  # compute and communication kernels at the same time
        "memcpy_ns": pl.Int64,
        "memset_ns": pl.Int64,
        # as Paddle counts: communication on the CPU (ranges) or on the device
        "any_communication_ns": pl.Int64,
        "any_overlap_ns": pl.Int64,  # overlap of `any_communication_ns` with `compute_ns`
    },
    name="GPU_TIMES",
)

ACTIVITY = pl.Enum(
    [
        "span",  # of the step on the CPU; without steps, from the first to the last event of the process
        "range",  # inside any NVTX range
        "operator",
        *("forward", "backward", "optimizer", "data"),  # outermost jobs of these kinds
        "communication",  # ranges of NCCL, and ranges with names of communication
        "cuda",  # inside calls of CUDA
        "sync",  # inside calls of CUDA that wait for the GPU
        "os",  # inside calls of the operating system
        "cpu",  # on a processor: summed over threads
    ]
)
HOST_TIMES = build_schema(
    {  # time of each activity of a process on the CPU, cut at the borders of steps
        **_PROCESS,
        "activity": ACTIVITY,
        "count": pl.Int64,  # intervals that begin in the step
        "union_ns": pl.Int64,  # union over all threads; for "cpu", the sum over all threads
    },
    name="HOST_TIMES",
)

IDLE_CAUSE = pl.Enum(
    [
        "edges",  # before the first operation, after the last
        "host_late",  # the call that launched the next operation began after the gap had begun
        "kernel_wait",  # a gap shorter than KERNEL_WAIT_NS, between kernels that follow each other directly
        "other",  # launched in time, but waiting for a stream, an event, or another process
        "unknown",  # the launch was not recorded
    ]
)
# Gaps shorter than this are "kernel_wait": HolisticTraceAnalysis' threshold.
KERNEL_WAIT_NS = 30
IDLE_TIMES = build_schema(
    {  # gaps in which a device, or a stream of it, ran nothing; cut at the borders of steps
        **_DEVICE,
        "stream_id": pl.Int64,  # null: the whole device; the times of its causes add up to span_ns - busy_ns
        "cause": IDLE_CAUSE,
        "count": pl.Int64,  # gaps that begin in the step
        "total_ns": pl.Int64,
        "most_ns": pl.Int64,  # full length of the longest gap that begins in the step; null without one
    },
    name="IDLE_TIMES",
)

LAUNCH_AGGREGATES = build_schema(
    {  # launch delays: from the start of the launching call to the start of the kernel or graph
        **_DEVICE,
        "short_count": pl.Int64,  # operations shorter than their launching call
        "slow_call_count": pl.Int64,  # operations with a call longer than SLOW_CALL_NS
        "late_count": pl.Int64,  # operations with a delay longer than LATE_NS
        # sum of the times from call start to operation end; divided by the length of the step: mean length of
        # the queue
        "queued_ns": pl.Int64,
        "queue_most": pl.Int64,  # maximum length of the queue: operations called but not finished
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
        "job": JOB_KIND,  # kind of the innermost job around the call
        "allocation_count": pl.Int64,
        "free_count": pl.Int64,
        "allocated_bytes": pl.Int64,
        "freed_bytes": pl.Int64,
    },
    name="MEMORY_AGGREGATES",
)
MEMORY_PEAKS = build_schema(
    {  # peak of the memory that was allocated during the capture and not yet released
        **_DEVICE,
        "kind": pl.String,
        "peak_bytes": pl.Int64,  # within the step
    },
    name="MEMORY_PEAKS",
)
JOB_MEMORY_PEAKS = build_schema(
    {  # likewise, while the host was in a job of a kind
        **_DEVICE,
        "kind": pl.String,
        "job": JOB_KIND,
        "peak_bytes": pl.Int64,
    },
    name="JOB_MEMORY_PEAKS",
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
    "job_memory_peaks": JOB_MEMORY_PEAKS,
}

SUMMARY_PROCESSES = build_schema(
    {  # one row per GPU process, and one per process without a GPU; in natural order
        "process": pl.UInt32,  # number of the row: 0, 1, ...
        "report": pl.UInt32,  # position among the reports
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null: the process used no GPU
        "machine": pl.String,
        "gpu": pl.String,  # null: none
        "stage": pl.Int64,
        "label": pl.String,  # unique: "rank 3"; "node2 GPU 0" where no rank is known; "node2 pid 71"
    },
    name="SUMMARY_PROCESSES",
)


class Summary(Struct, frozen=True, kw_only=True):
    """Aggregates of all reports.

    Attributes:
        processes: `SUMMARY_PROCESSES`.
        frames: `AGGREGATE_FRAMES` by name, with `process` instead of process_key and device_id, and with the
            numbers of steps of the whole run. Activity of a process on the CPU has the first row of the
            process; the frame, or its `measure`, distinguishes the CPU from GPUs.
        recorded: Per report, our names of what it has rows of.
    """

    processes: pl.DataFrame
    frames: Mapping[str, pl.DataFrame]
    recorded: tuple[frozenset[str], ...]


UNIT = pl.Enum(["ns", "fraction"])
KEYS = ("stage", "subject", "metric", "unit")
SAMPLE = build_schema(
    {  # one row per metric and step; metrics in the order of the tables
        "stage": pl.Int64,
        "subject": pl.String,
        "metric": pl.String,
        "unit": UNIT,
        "step": pl.Int64,
        "value": pl.Float64,
        "least": pl.Float64,  # the smallest difference that matters, in the same unit
    },
    name="SAMPLE",
)
# Names of the frames of a run (`SAMPLE`), which are the tables of a comparison.
SAMPLED = ("steps", "bubbles", "stages", "ranks", "links", "kinds", "families", "kernels")


class RunFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a run on which its times depend.

    Attributes:
        made_by: Version of nsys-pp.
        recordings: Marks of the reports, by which a run is recognised as itself.
        window: Steps that were asked for, as in "10:14"; "": all.
        steps: Complete steps.
        step_source: Source of the steps: "range", "jobs", "inferred" or "capture".
        batches: The steps are batches of inference: "decodes" (others are left out), or "of unknown kinds";
            "": they are not.
        decode_requests: Mean number of requests in a decode; None: unknown.
        gpus: Number of lanes by name of the GPU.
        drivers: Versions of the GPU driver.
        cuda: Newest versions of CUDA that the drivers support.
        nsys: Versions of nsys.
        lane_count: GPU processes in the reports.
        run_size: Ranks of the run, also those without a report; 0: unknown.
        machine_count: Machines in the reports.
        stage_count: Stages of the run; 0: unknown.
        replica_count: Data-parallel replicas in the reports; 0: unknown.
        tensor_count: Tensor-parallel ranks in the reports; 0: unknown.
        schedule: Name of the pipeline schedule.
        micro_batch_count: Micro-batches of a step on a lane; 0: unknown.
        chunk_count: Parts of the model on each stage; 0: unknown.
        has_passes: Forwards or backwards are known.
        preset: Naming rules of jobs.
        recorded: Kinds of data with rows in any report, in words.
        graph_modes: Tracing of CUDA graphs: "Graph", "Node".
        options: Operations that count, and scope of launches, as options of `nsys-pp extract`.
        bound_ns: Largest error bound of the clocks; None: unknown.
        is_on_one_clock: The times of all lanes can be compared.
    """

    made_by: str = ""
    recordings: tuple[str, ...] = ()
    window: str = ""
    steps: tuple[int, ...] = ()
    step_source: str = ""
    batches: str = ""
    decode_requests: float | None = None
    gpus: dict[str, int] = {}
    drivers: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    nsys: tuple[str, ...] = ()
    lane_count: int = 0
    run_size: int = 0
    machine_count: int = 0
    stage_count: int = 0
    replica_count: int = 0
    tensor_count: int = 0
    schedule: str = ""
    micro_batch_count: float = 0.0
    chunk_count: int = 0
    has_passes: bool = False
    preset: str = ""
    recorded: tuple[str, ...] = ()
    graph_modes: tuple[str, ...] = ()
    options: str = ""
    bound_ns: int | None = None
    is_on_one_clock: bool = True


class RunSums(Struct, frozen=True, kw_only=True):
    """Facts and samples of a run.

    Attributes:
        facts: Facts of the run.
        samples: `SAMPLE` of complete steps by name (`SAMPLED`).
    """

    facts: RunFacts
    samples: Mapping[str, pl.DataFrame]

    def __repr__(self) -> str:
        """Return the size; frames are many."""
        return f"RunSums({self.facts.lane_count} ranks, {len(self.facts.steps)} steps)"
