"""Causes of bubbles, the waits of a report that they are derived from, and its longest gaps.

A gap between kernels is explained by the chain of what held the kernel after it. An operation starts when the last of
these has happened: the operation before it on its stream ended, the operations of other streams that its stream waits
for ended, or it was launched; where its launch came last, the host was busy, or waited for an operation itself:

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
| `message` | a message runs: either of these. The peer is unknown, or begins at a time that the clocks leave open |
| `collective_wait` | a collective runs, and other members have not begun |
| `collective_transfer` | a collective runs, and all members in the reports have begun |
| `collective` | a collective runs: either of these. A member is not known, or begins at a time that the clocks leave open |
| `copy` | a copy or set runs |
| `host` | an operation is not launched, or starts a moment after its launch or after the operation that held it |
| `profiler` | the cause is `host`, and nsys held the thread that launches |
| `data` | the cause is `host` or `idle`, and the host loads data |
| `unknown` | an operation is launched, and nothing recorded explains why it does not start |
| `idle` | all operations of the step have ended |
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME

NEED = pl.Enum(["message", "collective"])
"""Kinds of operations that hold a gap with a cause that depends on other ranks."""
MEANINGS = {  # of causes, as tables explain them
    "compute": "kernels other than communication",
    "pause": "gaps between two kernels that are too short for a bubble",  # in `LANE_STATES` part of "compute"
    "message_wait": "waiting for a message whose peer has not begun",
    "message_transfer": "transfer of a message that is needed",
    "message": "waiting for a message or its transfer: its peer is not known well enough",
    "collective_wait": "waiting for a collective that other lanes have not begun",
    "collective_transfer": "transfer of a collective that is needed",
    "collective": "waiting for a collective or its transfer: its members are not known well enough",
    "copy": "duration of a copy that is needed",
    "data": "the host loads data",
    "host": "late launch: nothing else was missing",
    "profiler": "late launch: nsys held the thread that launches",
    "unknown": "launched, and nothing recorded explains the delay",
    "idle": "no work left in the step",
}
"""A new cause also needs a color (`nsys_pp.write.trace.colors`) and the rule that finds it: in `nsys_pp.training.report.waits`, or in
`nsys_pp.training.run.bubbles` where other ranks decide."""
CAUSES = tuple(MEANINGS)
CAUSE = pl.Enum(CAUSES)
BUBBLE_CAUSES = tuple(cause for cause in CAUSES if cause not in ("compute", "pause"))
HOST_CAUSES = ("host", "data")
"""Causes of bubbles in which the program on the host kept the device waiting."""

WAITS = build_schema(
    {  # one row per piece of a gap between the compute segments of a step; by process_key, device_id, start_ns.
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
    {  # longest gaps between compute segments, one row per gap and activity; by process_key, device_id, start_ns,
        # activity, descending time. A gap without a known activity has one row.
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # of the segment after it; null outside all steps
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
