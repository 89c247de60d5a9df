"""Frames of a training: of one report, and of a whole run.

Frames of one report (`JOBS`, `STEPS`, `COMPUTE_SEGMENTS`, `WAITS`, `MESSAGES`, `KERNEL_AGGREGATES`) are on the report's
clock and independent of other reports, so parts contain them. Frames of the whole run (a `Training`) are on the
trace's clock and identify each GPU process by its `lane`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl
from msgspec import Struct

from nsys_pp.frames.batches import BATCHES
from nsys_pp.frames.causes import CAUSE, GAPS, WAITS
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.overheads import OVERHEAD_SUMS
from nsys_pp.frames.phases import PHASES
from nsys_pp.frames.report import NAME, OP_KIND
from nsys_pp.frames.short_repr import ShortRepr

JOB_KINDS = (
    "forward",
    "backward",  # whole, or the input gradients of a split one
    "weight_gradient",  # the rest of a split backward
    "recompute",
    "forward_backward",  # combined forward and backward: `micro_batch` is the forward's
    "optimizer",
    "send",
    "receive",
    "send_receive",
    "data",
    "other",
)
JOB_KIND = pl.Enum(JOB_KINDS)
SCHEDULED_KINDS = (
    "forward",
    "backward",
    "weight_gradient",
    "forward_backward",
)  # jobs that a schedule orders
MICRO_BATCH_KINDS = ("forward", "backward", "weight_gradient", "recompute", "forward_backward")
COMPUTE_KINDS = (*MICRO_BATCH_KINDS, "optimizer")
MESSAGE_KINDS = ("send", "receive", "send_receive")
DIRECTION = pl.Enum(["forward", "backward"])
"""Direction of a message: activations are sent forward, gradients backward."""
POSITION = pl.Enum(["warm-up", "steady", "cool-down"])
STEP_SOURCE = pl.Enum(["range", "jobs", "repetition", "capture"])
"""Source of steps: ranges, the order of jobs, repetition of operations, or one step for the whole capture."""
PAUSE_NS = 2_000
"""Longest gap between kernels that does not count as a bubble: back-to-back kernels of one stream have such gaps."""

JOBS = build_schema(
    {  # one row per job and device; by host_start_ns, range_id, device_id
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "device_id": pl.Int32,  # null without launches
        "range_id": pl.Int64,
        "outer_id": pl.Int64,  # range_id of the innermost job around it; null without one
        "name": NAME,
        "kind": JOB_KIND,
        "direction": DIRECTION,  # of sends and receives; null where the name has none
        # Parsed from the name; null where it has none.
        "micro_batch": pl.Int64,
        "chunk": pl.Int64,  # part of the model, numbered in its stage
        "virtual_stage": pl.Int64,  # part of the model, numbered over all stages
        "stage": pl.Int64,
        "backward_micro_batch": pl.Int64,  # of the backward of a "forward_backward"
        "backward_chunk": pl.Int64,
        "backward_virtual_stage": pl.Int64,
        "role": pl.String,  # name of the model, where there are several: "actor", "critic"
        "step": pl.Int64,  # of `STEPS`; null outside all of them
        "host_start_ns": pl.Int64,  # the range on the CPU
        "host_end_ns": pl.Int64,
        "start_ns": pl.Int64,  # start of its first operation; null without launches
        "end_ns": pl.Int64,  # end of its last operation
        "busy_ns": pl.Int64,  # union of its operations
        "total_ns": pl.Int64,  # sum of the durations of its operations
        # First start, last end and union of its kernels that are not communication; null without any.
        "compute_start_ns": pl.Int64,
        "compute_end_ns": pl.Int64,
        "compute_ns": pl.Int64,
        "launch_delay_ns": pl.Int64,  # from the start of the call that launched its first operation to the operation
        "op_count": pl.Int64,
        "is_open": pl.Boolean,  # open at the end of the capture
    },
    name="JOBS",
)

STEPS = build_schema(
    {  # one row per step and device; by process_key, device_id, start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        # Number in its name, else counted from 0. A step before the first range has the number of the range minus 1.
        "step": pl.Int64,
        "is_numbered": pl.Boolean,  # the number is from the name
        "name": NAME,  # of its range; null for steps without a range
        "source": STEP_SOURCE,
        "confidence": pl.Float64,  # in steps found by repetition, 0 to 1; else null
        "reason": pl.String,  # evidence for steps found by repetition; for no such steps, if the capture is one step
        # From its start on the host, but not before the last operation of the step before has ended, and at the
        # latest from its first kernel (or copy or set on a stream with kernels), to the start of the next step; the
        # last step ends with its range and its last operation.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "host_start_ns": pl.Int64,  # its range on the CPU, else its jobs on the CPU; null without both
        "host_end_ns": pl.Int64,
        "is_partial": pl.Boolean,  # the capture began or ended inside it
    },
    name="STEPS",
)

COMPUTE_SEGMENTS = build_schema(
    {  # kernels that are not communication, joined over gaps of at most PAUSE_NS and cut at the start
        # of steps. One row per segment; by process_key, device_id, start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "compute_ns": pl.Int64,  # union of its kernels
        "op_count": pl.Int64,
    },
    name="COMPUTE_SEGMENTS",
)

MESSAGES = build_schema(
    {  # one row per send or receive of a kernel (several for a grouped kernel); by start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "context_id": pl.Int32,
        "stream_id": pl.Int64,
        "op_id": pl.UInt32,  # the kernel in GPU_OPS
        "launch_ns": pl.Int64,  # start of the launching call; null where unknown
        "start_ns": pl.Int64,  # of the kernel
        "end_ns": pl.Int64,
        "verb": pl.Enum(["send", "receive"]),  # null where unknown
        "source": pl.Enum(["NCCL", "name"]),  # of the verb: NCCL request, or job name; null where unknown
        "communicator": pl.UInt64,
        "rank": pl.Int64,  # within the communicator
        "peer": pl.Int64,  # within the communicator
        "size_bytes": pl.Int64,
        # Parsed from the name of the job around its launch; null where unknown.
        "direction": DIRECTION,
        "micro_batch": pl.Int64,
        "chunk": pl.Int64,
        "virtual_stage": pl.Int64,
        "step": pl.Int64,  # of `STEPS`
    },
    name="MESSAGES",
)

KERNEL_AGGREGATES = build_schema(
    {  # one row per device, step, kind, names, is_communication and job_kind; by step, name, is_communication
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # null outside all steps
        "kind": OP_KIND,  # kernel, or graph
        "name": NAME,
        "full_name": NAME,  # demangled, with parameters; null where not recorded, or equal to name
        "is_communication": pl.Boolean,
        "job_kind": JOB_KIND,  # kind of the innermost job around its launch; null outside all jobs
        "count": pl.Int64,
        "total_ns": pl.Int64,
        "min_ns": pl.Int64,
        "max_ns": pl.Int64,
    },
    name="KERNEL_AGGREGATES",
)

REPORT_FRAMES: Mapping[str, pl.Schema] = {
    "jobs": JOBS,
    "steps": STEPS,
    "batches": BATCHES,
    "phases": PHASES,
    "compute_segments": COMPUTE_SEGMENTS,
    "waits": WAITS,
    "gaps": GAPS,
    "messages": MESSAGES,
    "kernels": KERNEL_AGGREGATES,
    "overheads": OVERHEAD_SUMS,
}

FIRST_FORWARDS, MESSAGE_PEERS = "first forwards", "message peers"
"""Sources of stages that are inferred: the order of first forwards; the ranks that NCCL recorded as peers of messages."""

LANES = build_schema(
    {  # one row per GPU process, in display order: stage, replica, tensor, rank
        "lane": pl.UInt32,  # 0, 1, ...
        "report": pl.UInt32,  # index of the report
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "machine": pl.String,
        "gpu": pl.String,
        "rank": pl.Int64,  # null where unknown
        "stage": pl.Int64,  # null where unknown
        "stage_source": pl.String,  # "--layout", "NVTX", "job names", `MESSAGE_PEERS`, or `FIRST_FORWARDS`
        "stage_count": pl.Int64,  # stages of the run, also those without a report; null where unknown
        "run_size": pl.Int64,  # ranks of the run, likewise
        "replica": pl.Int64,
        "tensor": pl.Int64,
        "label": pl.String,  # unique: "rank 3", or "node2 GPU 0" where the rank is unknown
        "clock": pl.UInt32,  # row of `CLOCKS`: times of lanes of one clock are exact relative to each other
        "clock_group": pl.UInt32,  # `CLOCKS.group`: times of lanes of different groups cannot be compared
        "bound_ns": pl.Int64,  # error bound of its times relative to other lanes of its group; null: unknown
    },
    name="LANES",
)

RUN_STEPS = build_schema(
    {  # one row per step and lane; by step, lane
        "lane": pl.UInt32,
        "step": pl.Int64,  # the same number on all lanes
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_partial": pl.Boolean,  # on this lane
        "source": STEP_SOURCE,
        "confidence": pl.Float64,  # as in `STEPS`
    },
    name="RUN_STEPS",
)

RUN_SPANS = build_schema(
    {  # one row per step of the run, in order
        "step": pl.Int64,
        "start_ns": pl.Int64,  # of the first lane to start
        "end_ns": pl.Int64,  # of the last lane to end
        "is_partial": pl.Boolean,  # on any lane
        "lane_count": pl.Int64,  # lanes with the step
    },
    name="RUN_SPANS",
)

RUN_JOBS = build_schema(
    {  # one row per job and lane, only jobs that ran on a GPU; by lane, start_ns. Columns as in JOBS, with
        # inferred ids. name, range_id, host times, launch_delay_ns and op_count of jobs that were reconstructed
        # from messages are null.
        "lane": pl.UInt32,
        "job": pl.UInt32,  # 0, 1, ...: row of this frame
        "outer": pl.UInt32,  # `job` of the innermost job around it; null without one
        "step": pl.Int64,
        "kind": JOB_KIND,
        "direction": DIRECTION,
        "micro_batch": pl.Int64,
        "chunk": pl.Int64,
        "virtual_stage": pl.Int64,
        "backward_micro_batch": pl.Int64,
        "backward_chunk": pl.Int64,
        "backward_virtual_stage": pl.Int64,
        "is_inferred": pl.Boolean,  # micro_batch or chunk is not from its name
        "confidence": pl.Float64,  # of inferred ids, 0 to 1; null without any
        "phase": pl.Int64,  # of a DualPipeV schedule, 0 to 6; else null
        "label": pl.String,  # text for its bar: "3", "3b", "7F+13B"
        "name": NAME,
        "role": pl.String,
        "range_id": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "busy_ns": pl.Int64,
        "compute_start_ns": pl.Int64,
        "compute_end_ns": pl.Int64,
        "compute_ns": pl.Int64,
        "host_start_ns": pl.Int64,
        "host_end_ns": pl.Int64,
        "launch_delay_ns": pl.Int64,
        "op_count": pl.Int64,
    },
    name="RUN_JOBS",
)

LANE_STATES = build_schema(
    {  # one row per state of a lane; by lane, start_ns. The states of a step cover [start_ns, end_ns) of
        # RUN_STEPS without gaps or overlaps, and adjacent states differ.
        "lane": pl.UInt32,
        "step": pl.Int64,
        # Warm-up: before the lane's first backward of the step; cool-down: after its last forward; null
        # where the step has none of these.
        "position": POSITION,
        "cause": CAUSE,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "waits_for": pl.UInt32,  # the late lane, for message_wait and collective_wait; null where unknown
    },
    name="LANE_STATES",
)

COVER = build_schema(
    {  # the compute of `LANE_STATES`, split into kernels and pauses of at most PAUSE_NS between them; by step, lane
        "lane": pl.UInt32,
        "step": pl.Int64,
        "compute_ns": pl.Int64,  # union of the kernels
        "pause_ns": pl.Int64,
    },
    name="COVER",
)

IDEAL = build_schema(
    {  # one row per job of an ideal step, which has the recorded jobs in the recorded order, without
        # communication and launch delays; by lane, start_ns
        "lane": pl.UInt32,
        "step": pl.Int64,
        "job": pl.UInt32,  # of RUN_JOBS
        "start_ns": pl.Int64,  # the first job of a step has the recorded start of the step
        "end_ns": pl.Int64,
    },
    name="IDEAL",
)


class Schedule(Struct, frozen=True, kw_only=True):
    """Schedule of a run.

    Attributes:
        name: "gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev", or "unknown".
        source: "given", "recognised" or "uncertain"; "" where unknown. Uncertain: recognised by the jobs, but much compute
            belongs to no job.
        stage_count: Stages of the pipeline; 0 where unknown.
        micro_batch_count: Micro-batches of a step; 0 where unknown.
        chunk_count: Parts of the model that each stage holds; 0 where unknown.
        agreement: Share of the jobs that are at their positions in the schedule, 0 to 1.
        reason: Reason for an unknown or uncertain schedule; "" otherwise.
        unexplained: Share of the compute between jobs that belongs to no job, 0 to 1; None: unknown.
    """

    name: str
    source: str
    stage_count: int
    micro_batch_count: int
    chunk_count: int
    agreement: float
    reason: str = ""
    unexplained: float | None = None


class Loss(Struct, frozen=True, kw_only=True):
    """A message of nsys that events of a report were lost."""

    report: int  # its number, as in `LANES`
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Training(ShortRepr):
    """Frames and notes of a training run, on the trace's clock."""

    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    batches: pl.DataFrame  # LANE_BATCHES: BATCHES with `lane` instead of process_key and device_id
    phases: pl.DataFrame  # LANE_PHASES: PHASES with `lane` instead of process_key and device_id
    jobs: pl.DataFrame  # RUN_JOBS
    transfers: pl.DataFrame  # TRANSFERS
    lane_states: pl.DataFrame  # LANE_STATES
    cover: pl.DataFrame  # COVER
    gaps: pl.DataFrame  # LANE_GAPS: GAPS with `lane` instead of process_key and device_id
    ideal: pl.DataFrame  # IDEAL
    kernels: pl.DataFrame  # KERNEL_AGGREGATES with `lane` instead of process_key and device_id
    overheads: pl.DataFrame  # LANE_OVERHEADS: OVERHEAD_SUMS with `lane` instead of process_key and device_id
    schedule: Schedule
    preset: str  # name of the naming rules; "" without any
    zero_ns: int  # start of the earliest session on the trace's clock
    losses: tuple[Loss, ...] = ()
    notes: list[str] = field(default_factory=list)  # sentences on inferred, refused and doubtful results


def span_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Compute the span of each step of the run: from its first start to its last end on any lane.

    Args:
        steps: `RUN_STEPS`.

    Returns:
        `RUN_SPANS`. Empty in, empty out.
    """
    spans = steps.group_by("step").agg(
        start_ns=pl.col("start_ns").min(),
        end_ns=pl.col("end_ns").max(),
        is_partial=pl.col("is_partial").any(),
        lane_count=pl.col("lane").n_unique(),
    )
    return conform(spans.sort("step"), RUN_SPANS)


def mark_split_backwards(jobs: pl.DataFrame) -> pl.Series:
    """Return the mask of jobs with a weight gradient job of the same micro-batch and chunk.

    Args:
        jobs: `RUN_JOBS`, or a part of it.
    """
    keys = ["lane", "step", "micro_batch", "chunk"]
    weights = jobs.filter(kind="weight_gradient").select(keys).unique().with_columns(is_split=pl.lit(True))
    if weights.is_empty():
        return pl.repeat(False, len(jobs), dtype=pl.Boolean, eager=True).alias("is_split")
    joined = jobs.select(keys).join(weights, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined["is_split"].fill_null(False)
