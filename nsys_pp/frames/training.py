"""Steps, jobs, messages, bubbles and their causes: of one report (lanes) and of all.

A gap between kernels is explained by the chain of what held the kernel after it. An operation starts when the
last of these has happened: the operation before it on its stream ended, the operations of other streams that
its stream waits for ended, or it was launched; where its launch came last, the host was busy, or waited for
an operation itself:

    kernels     gemm )                                                      [ gemm
    memset           .                                           [      )   .
    receive          .      [                           )        .      .   .
    peer's send      .      .               [           )        .      .   .
    cause            | host | message_wait  | message_  |  host  | copy |host
                                            | transfer  |

Each piece of the gap has the cause of the link that held it:

| cause | link |
|---|---|
| `message_wait` | a message runs, and the kernel of its peer has not begun |
| `message_transfer` | a message runs, and so does the kernel of its peer |
| `message` | a message runs: either of these. The peer is unknown, or begins at a time that the clocks leave
open | | `collective_wait` | a collective runs, and other members have not begun | | `collective_transfer` | a
collective runs, and all members in the reports have begun | | `collective` | a collective runs: either of
these. A member is not known, or begins at a time that the clocks leave open | | `copy` | a copy or set runs |
| `host` | an operation is not launched, or starts a moment after its launch or after the operation that held
it | | `loading` | the cause is `host`, and CUDA loads or compiles code in the thread that launches | |
`profiler` | the cause is `host`, and nsys held the thread that launches | | `data` | the cause is
`host` or `idle`, and the host loads data | | `unknown` | an operation is launched, and nothing recorded
explains why it does not start | | `idle` | all operations of the step have ended |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import polars as pl
from msgspec import Struct

from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import NAME, Schema, ShortRepr, build_schema, conform, extend_schema
from nsys_pp.frames.report import MPI_MESSAGES, OP_KIND, OVERHEAD_SUMS
from nsys_pp.frames.roster import ROSTER

# Kinds of operations that hold a gap with a cause that depends on other ranks.
NEED = pl.Enum(["message", "collective"])

_CAUSES = {  # words in sentences, and meaning in tables
    "compute": ("compute", "kernels other than communication"),
    # in `LANE_STATES` part of "compute"
    "pause": ("pauses", "gaps between two kernels that are too short for a bubble"),
    "message_wait": ("waiting for messages", "waiting for a message whose peer has not begun"),
    "message_transfer": ("transfers of messages", "transfer of a message that is needed"),
    "message": ("messages", "waiting for a message or its transfer: its peer is not known well enough"),
    "collective_wait": (
        "waiting for collectives",
        "waiting for a collective that other lanes have not begun",
    ),
    "collective_transfer": ("transfers of collectives", "transfer of a collective that is needed"),
    "collective": (
        "collectives",
        "waiting for a collective or its transfer: its members are not known well enough",
    ),
    "copy": ("copies", "duration of a copy that is needed"),
    "data": ("waiting for data", "the host loads data"),
    "host": ("late launches", "late launch: nothing else was missing"),
    "loading": (
        "loading of kernels (first use)",
        "late launch: CUDA loaded or compiled code in the thread that launches",
    ),
    "profiler": ("waiting for nsys itself", "late launch: nsys held the thread that launches"),
    "unknown": (
        "unknown causes",
        "nothing recorded explains the delay of what was launched, or the GPU's clock is off",
    ),
    "idle": ("no work left", "no work left in the step"),
}
# Words of causes in sentences.
CAUSE_WORDS = {cause: words for cause, (words, _) in _CAUSES.items()}
# Meanings of causes in tables. A new cause also needs a color (`nsys_pp.output.colors`) and the rule that
# finds it, in `nsys_pp.training.waits`, or in `nsys_pp.training.causes` where other ranks decide.
MEANINGS = {cause: meaning for cause, (_, meaning) in _CAUSES.items()}

CAUSES = tuple(MEANINGS)
CAUSE = pl.Enum(CAUSES)
BUBBLE_CAUSES = tuple(cause for cause in CAUSES if cause not in ("compute", "pause"))
# Causes of bubbles in which the program on the host kept the device waiting.
HOST_CAUSES = ("host", "data")

WAITS = build_schema(
    # one row per piece of a gap between the compute segments of a step; by process_key, device_id, start_ns.
    {
        # Segments and waits of a step cover it without overlaps.
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "cause": CAUSE,  # null where other ranks decide
        # The message or collective that runs; null where `cause` is not.
        "need": NEED,
        "need_op_id": pl.UInt32,
        "need_start_ns": pl.Int64,
        "need_end_ns": pl.Int64,
    },
    name="WAITS",
)

GAPS = build_schema(
    # longest gaps between compute segments, one row per gap and activity; by process_key, device_id,
    # start_ns,
    {
        # activity, descending time. A gap without a known activity has one row.
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of the segment after it, or of the last one; null outside all steps
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "launch_ns": pl.Int64,  # start of the call that launched the kernel after it; null where unknown
        # Of the thread of this call, inside the gap; null where nothing is recorded.
        "activity": pl.Enum(["range", "call", "os_call"]),
        "name": NAME,
        "time_ns": pl.Int64,  # without that of activities of the same kind inside it
    },
    name="GAPS",
)

# Kind of a batch of inference: new requests, tokens of running requests, or both.
BATCH_KIND = pl.Enum(["prefill", "decode", "mixed"])

# Counts of a batch: requests and tokens of prefills (context), and of running requests (generation).
BATCH_COUNTS = ("context_requests", "context_tokens", "generation_requests", "generation_tokens")

# Activities of the host while the GPU is idle between two batches: scheduling, preparing inputs, launching
# (and the rest of the forward), sampling (with the update of requests), tokenising (with the output of
# responses), copying, waiting (synchronising calls, locks), and time without any of these.
HOST_ACTIVITIES = (
    "scheduling",
    "preparing",
    "launching",
    "sampling",
    "tokenising",
    "copying",
    "waiting",
    "other",
)

HOST_ACTIVITY_COLUMNS = tuple(f"{activity}_ns" for activity in HOST_ACTIVITIES)

BATCHES = build_schema(
    {  # steps of inference, one row per step and device; by process_key, device_id, step
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of `STEPS`
        "kind": BATCH_KIND,  # null where unknown
        "source": pl.Enum(["name", "launches"]),  # of `kind`; null where unknown
        # Counts in the name of the range; null where it has none.
        **dict.fromkeys(BATCH_COUNTS, pl.Int64),
        # Operations launched from the start of its range to the start of the next one, without copies on
        # streams aside, and kernels of other threads there: first start and last end.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "busy_ns": pl.Int64,  # union of all operations between both
        "kernel_ns": pl.Int64,  # sum of the durations of its kernels
        "graph_ns": pl.Int64,  # of these in CUDA graphs
        "launch_count": pl.Int64,  # calls that launched kernels
        "graph_launch_count": pl.Int64,  # of these that launched CUDA graphs
        # from its end to the start of the next batch of the device; null for the last one
        "gap_ns": pl.Int64,
        # Parts of the gap by the activity of the thread that launched the next batch; null without a gap.
        **dict.fromkeys(HOST_ACTIVITY_COLUMNS, pl.Int64),
    },
    name="BATCHES",
)

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
# Direction of a message: activations are sent forward, gradients backward.
DIRECTION = pl.Enum(["forward", "backward"])

POSITION = pl.Enum(["warm-up", "steady", "cool-down"])
# Source of steps: ranges, the order of jobs, launches that clearly repeat, or one step for the capture.
STEP_SOURCE = pl.Enum(["range", "jobs", "inferred", "capture"])

# Longest gap between kernels that does not count as a bubble. Back-to-back kernels of one stream have such
# gaps.
PAUSE_NS = 2_000

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
        "own_rank": pl.Int64,  # of a message, in its communicator
        "peer": pl.Int64,  # of a message: the rank of its peer in its communicator
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
        # from the start of the call that launched its first operation to the operation
        "launch_delay_ns": pl.Int64,
        "op_count": pl.Int64,
        "is_open": pl.Boolean,  # open at the end of the capture
    },
    name="JOBS",
)

STEPS = build_schema(
    {  # one row per step and device; by process_key, device_id, start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        # Number in its name, else counted from 0. A step before the first range has the number of the range
        # minus 1.
        "step": pl.Int64,
        "is_numbered": pl.Boolean,  # the number is from the name
        "name": NAME,  # of its range; null for steps without a range
        "source": STEP_SOURCE,
        # evidence for steps found by repetition; for no such steps, if the capture is one step
        "reason": pl.String,
        # From its start on the host, but not before the last operation of the step before has ended, and at
        # the latest from its first kernel (or copy or set on a stream with kernels), to the start of the next
        # step; the last step ends with its range and its last operation.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "host_start_ns": pl.Int64,  # its range on the CPU, else its jobs on the CPU; null without both
        "host_end_ns": pl.Int64,
        "is_partial": pl.Boolean,  # the capture began or ended inside it
        "first_op_ns": pl.Int64,  # start of the first operation of the device, and end of its last one
        "last_op_ns": pl.Int64,
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
    "compute_segments": COMPUTE_SEGMENTS,
    "waits": WAITS,
    "gaps": GAPS,
    "messages": MESSAGES,
    "kernels": KERNEL_AGGREGATES,
    "overheads": OVERHEAD_SUMS,
}

# Sources of stages that are inferred: how many forwards each rank runs before its first backward, the order
# of first forwards, and the ranks that NCCL recorded as peers of messages.
WARM_UPS, FIRST_FORWARDS, MESSAGE_PEERS = "warm-ups", "first forwards", "message peers"

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
        # `GIVEN_LAYOUT`, "NVTX", "job names", `MESSAGE_PEERS`, `WARM_UPS`, or `FIRST_FORWARDS`
        "stage_source": pl.String,
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
    },
    name="RUN_STEPS",
)

RUN_SPANS = build_schema(
    {  # one row per step of the run, in order
        "step": pl.Int64,
        "start_ns": pl.Int64,  # of the first lane to start
        "end_ns": pl.Int64,  # of the last lane to end
        "is_partial": pl.Boolean,  # on any lane
        "is_inferred": pl.Boolean,  # likewise
        "lane_count": pl.Int64,  # lanes with the step
    },
    name="RUN_SPANS",
)

RUN_JOBS = build_schema(
    {  # one row per job and lane, only jobs that ran on a GPU; by lane, start_ns. Columns as in JOBS, with
        # inferred ids. name, range_id, host times, launch_delay_ns and op_count of jobs that were
        # reconstructed from messages are null.
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
    # the compute of `LANE_STATES`, split into kernels and pauses of at most PAUSE_NS between them; by step,
    # lane
    {
        "lane": pl.UInt32,
        "step": pl.Int64,
        "compute_ns": pl.Int64,  # union of the kernels
        "pause_ns": pl.Int64,
    },
    name="COVER",
)

# Of steps of several lanes: a whole capture, where other lanes have steps; it is compared with none of them.
IS_STEPLESS = (pl.col("source") == "capture") & (pl.col("source") != "capture").any()

# Parts of a capture: from the first to the last operation, or step, of the GPUs of a report. The steps of a
# lane; what lies between, before and after them; and what lies before its first and after its last operation.
# All of a lane without known steps, where others have some, is unknown.
RUN_PART = pl.Enum(["steps", "between", "before", "after", "absent", "unknown"])

COVERAGE = build_schema(
    {  # one row per lane and part that it has; by lane, part
        "lane": pl.UInt32,
        "part": RUN_PART,
        "time_ns": pl.Int64,
        "compute_ns": pl.Int64,  # union of its kernels that are not communication
        "longest_start_ns": pl.Int64,  # its longest stretch
        "longest_end_ns": pl.Int64,
    },
    name="COVERAGE",
)

PAUSES = build_schema(
    {  # times between two captures of a lane, in which nothing was recorded; by lane, start_ns
        "lane": pl.UInt32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="PAUSES",
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
        source: "given", "recognised" or "uncertain"; "" where unknown. Uncertain: recognised by the jobs, but
            much compute belongs to no job.
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
    """A message of nsys that events of a report were lost, or the number of its missing kernels."""

    report: int  # its number, as in `LANES`
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Training(ShortRepr):
    """Frames and notes of a training run, on the trace's clock."""

    lanes: pl.DataFrame  # LANES
    steps: pl.DataFrame  # RUN_STEPS
    batches: pl.DataFrame  # LANE_BATCHES: BATCHES with `lane` instead of process_key and device_id
    jobs: pl.DataFrame  # RUN_JOBS
    transfers: pl.DataFrame  # TRANSFERS
    anchors: pl.DataFrame  # LANE_ANCHORS
    lane_states: pl.DataFrame  # LANE_STATES
    cover: pl.DataFrame  # COVER
    coverage: pl.DataFrame  # COVERAGE; empty where steps were chosen
    gaps: pl.DataFrame  # LANE_GAPS: GAPS with `lane` instead of process_key and device_id
    ideal: pl.DataFrame  # IDEAL
    kernels: pl.DataFrame  # KERNEL_AGGREGATES with `lane` instead of process_key and device_id
    overheads: pl.DataFrame  # LANE_OVERHEADS: OVERHEAD_SUMS with `lane` instead of process_key and device_id
    schedule: Schedule
    preset: str  # name of the naming rules; "" without any
    zero_ns: int  # start of the earliest session on the trace's clock
    losses: tuple[Loss, ...] = ()
    notes: list[str] = field(default_factory=list)  # sentences on inferred, refused and doubtful results

    @property
    def known_steps(self) -> pl.DataFrame:
        """`RUN_STEPS` without captures of lanes without steps, unless no lane has any."""
        return self.steps.filter(~IS_STEPLESS)

    @property
    def step_count(self) -> int:
        """Number of `known_steps`."""
        return self.known_steps["step"].n_unique()


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
        is_inferred=(pl.col("source") == "inferred").any(),
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
    return (
        jobs.select(keys)
        .join(weights, on=keys, how="left", nulls_equal=True, maintain_order="left")["is_split"]
        .fill_null(False)
    )


JOB_RANGES = build_schema(
    {  # one row per range that is a job with GPU operations, by range_id
        "range_id": pl.Int64,
        "kind": JOB_KIND,
    },
    name="JOB_RANGES",
)

LANE_KEYS = ("report", "process_key", "device_id")


LANE_FRAMES: Mapping[str, Schema] = {
    # `LANE_JOBS` and so on, with `lane` in place of these keys. `step` is that of its report: `STEP_NUMBERS`
    # has those of the run.
    name: extend_schema(schema, {"lane": pl.UInt32}, name=f"LANE_{name.upper()}", without=LANE_KEYS)
    for name, schema in {**REPORT_FRAMES, "anchors": ANCHORS}.items()
}

GATHERED_FRAMES: Mapping[str, Schema] = {
    # rows in order of reports; `report` is the index of the report
    name: extend_schema(schema, {"report": pl.UInt32}, name=f"GATHERED_{name.upper()}")
    for name, schema in {**REPORT_FRAMES, "anchors": ANCHORS}.items()
}

ROSTER_WITH_BOUNDS = extend_schema(
    ROSTER,
    {
        "clock": pl.UInt32,  # row of `CLOCKS`
        "clock_group": pl.UInt32,  # `CLOCKS.group`
        "bound_ns": pl.Int64,  # error of the times of the report against others of its group; null: unknown
    },
    name="ROSTER_WITH_BOUNDS",
)

REPORT_JOBS = extend_schema(
    RUN_JOBS,  # the jobs of one report
    {  # the same times on its own clock; null for inferred jobs
        "report_start_ns": pl.Int64,
        "report_end_ns": pl.Int64,
        "report_host_start_ns": pl.Int64,
        "report_host_end_ns": pl.Int64,
    },
    name="REPORT_JOBS",
)

# Reasons why a pair of a send and a receive may be wrong. It is right only if clocks are wrong by more than
# their bounds.
DOUBTFUL = pl.Enum(["clocks"])

# Reasons, for people.
DOUBTFUL_TEXTS = {
    "clocks": "messages arrive before they are sent, so clocks are wrong by more than their bounds",
}

TRANSFERS = build_schema(
    {  # one row per pair of a send and its receive; by send_start_ns
        "sender": pl.UInt32,  # lane
        "receiver": pl.UInt32,
        "step": pl.Int64,  # of the sender; null outside all steps
        "direction": DIRECTION,  # null where unknown
        "micro_batch": pl.Int64,
        "size_bytes": pl.Int64,
        "send_start_ns": pl.Int64,  # the sender's kernel
        "send_end_ns": pl.Int64,
        "receive_start_ns": pl.Int64,  # the receiver's kernel
        "receive_end_ns": pl.Int64,
        # Null where the clocks of both lanes cannot be compared:
        "send_wait_ns": pl.Int64,  # time of the sender's kernel before the receiver's start
        "receive_wait_ns": pl.Int64,  # time of the receiver's kernel before the sender's start
        "transfer_ns": pl.Int64,  # the rest of the receiver's kernel
        "is_buffered": pl.Boolean,  # the send ended before the receive began
        "bound_ns": pl.Int64,  # error bound of waits and transfer: sum of both lanes' bounds; null: unknown
        # of the peer: "peer and order", "named peer and order", "only peer and order", "stages and order"
        "source": pl.String,
        "doubtful": DOUBTFUL,  # null: certain
    },
    name="TRANSFERS",
)

# Reasons that a send or receive has no counterpart.
UNPAIRED = pl.Enum(
    [
        "unknown communicator",
        "a rank with several processes",
        "any sender or tag",
        "several threads",
        "no counterpart",
        "different counts",
        "sizes or times that do not fit",
        "clocks that cannot be compared",
    ]
)

PART_MPI_MESSAGES = build_schema(
    {**MPI_MESSAGES, "process_row": pl.String},  # name of the row of the process in the drawing of the report
    name="PART_MPI_MESSAGES",
)

RUN_MPI_MESSAGES = build_schema(
    {  # `PART_MPI_MESSAGES` of all reports, on the trace's clock, in order of the reports
        **PART_MPI_MESSAGES,
        "report": pl.UInt32,
        "clock": pl.UInt32,
        "clock_group": pl.UInt32,
        "bound_ns": pl.Int64,
    },
    name="RUN_MPI_MESSAGES",
)

MPI_PAIRS = build_schema(
    {  # one row per send or receive, in order of `RUN_MPI_MESSAGES`
        "other": pl.UInt32,  # row of its counterpart; null without one
        "unpaired": UNPAIRED,  # reason; null with a counterpart
        "is_guess": pl.Boolean,  # earlier messages of one side may be missing; null without a counterpart
    },
    name="MPI_PAIRS",
)

# Groups of time in which metrics are measured.
METRIC_GROUPS = ("steps", "compute", "jobs", "families", "bubbles")

MEASURED_TIMES = build_schema(
    {  # intervals of lanes in which metrics are measured; any order
        "lane": pl.UInt32,
        "group": pl.String,  # of `METRIC_GROUPS`
        # kind of jobs, family of kernels, or cause of bubbles; null: steps, compute
        "item": pl.String,
        # of `RUN_STEPS`, in groups "steps", "compute" and "families", in which the intervals of an item do
        # not overlap; else null
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="MEASURED_TIMES",
)

FAMILY_TIMES = build_schema(
    {"family": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},  # one row per kernel, any order
    name="FAMILY_TIMES",
)

METRIC_SUMS = build_schema(
    {  # one row per lane, metric, group, item and step; any order
        "lane": pl.UInt32,
        "metric": pl.String,
        "group": pl.String,
        "item": pl.String,
        "step": pl.Int64,
        "integral": pl.Float64,  # of the metric over the time with samples, in nanoseconds times its unit
        "time_ns": pl.Int64,  # with samples, more than 0
        "peak": pl.Float64,  # largest sample
    },
    name="METRIC_SUMS",
)

# Activities of a thread: NVTX ranges, CUDA calls, calls of the operating system, states, stacks of these
# calls, functions and stacks of CPU samples; and what other threads of the program did meanwhile.
HOST_ACTIVITY = pl.Enum(
    ["range", "call", "OS call", "state", "stack", "sample", "sample stack", "other thread"]
)

HOST_TIMES = build_schema(
    {  # activities of hosts in bubbles of causes "host" and "data"; by lane, step, cause, activity, name
        "lane": pl.UInt32,
        "step": pl.Int64,  # of `RUN_STEPS`
        "cause": CAUSE,
        "activity": HOST_ACTIVITY,  # null: the row of the bubbles themselves
        "name": pl.String,
        # In the bubbles, without the time of activities inside it; null for samples. Of other threads with
        # one name: the mean.
        "time_ns": pl.Int64,
        "count": pl.Int64,  # bubbles with it; samples; other threads with it
    },
    name="HOST_TIMES",
)

NETWORK_SUMS = build_schema(
    {  # one row per step, machine and source; by these
        "step": pl.Int64,
        "machine": pl.String,
        "source": pl.String,  # "network cards", or the name of a switch
        "sent_bytes": pl.Float64,  # null where the metric was not recorded
        "received_bytes": pl.Float64,
        "sent_peak_bytes_per_s": pl.Float64,  # largest sample of any card or switch
        "received_peak_bytes_per_s": pl.Float64,
        # data of collectives of the machine's ranks, by NCCL's payloads; null: unknown
        "collective_bytes": pl.Int64,
    },
    name="NETWORK_SUMS",
)


class Explanations(Struct, frozen=True, kw_only=True):
    """Functions that read the data.

    Attributes:
        read_clocks: Clocks of the SMs during the kernels of each step (`METRIC_SUMS`, group "compute").
        read_hosts: Activities of the hosts of some lanes in bubbles of causes "host" and "data"
            (`HOST_TIMES`).
    """

    read_clocks: Callable[[], pl.DataFrame] = METRIC_SUMS.to_frame
    read_hosts: Callable[[Collection[int]], pl.DataFrame] = lambda lanes: HOST_TIMES.to_frame()


# Nothing is recorded, or reports are not to be read once more.
NONE = Explanations()
