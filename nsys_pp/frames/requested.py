"""Frames of tables on request: metrics of GPUs, and activities of hosts, on the trace's clock."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.causes import CAUSE
from nsys_pp.frames.conform import build_schema

METRIC_SAMPLES = build_schema(
    {  # one row per sample of a metric of a lane's GPU; the samples of a metric and lane are together, by time_ns
        "lane": pl.UInt32,
        "name": pl.String,
        "unit": pl.String,
        "time_ns": pl.Int64,  # the value is valid until the next sample
        "value": pl.Float64,
    },
    name="METRIC_SAMPLES",
)

HOST_ACTIVITY = pl.Enum(["range", "call", "OS call", "state", "stack", "sample", "sample stack"])
"""Activities of a thread: NVTX ranges, CUDA calls, calls of the operating system, states, stacks of these calls, and functions and stacks
of CPU samples."""

OVERHEAD_TIMES = build_schema(
    {  # time that overhead took of the launching threads of a lane, by lane, step and name
        "lane": pl.UInt32,
        "step": pl.Int64,  # null: outside all steps
        "name": pl.String,  # of the overhead; null: all of the profiler, of which several may be at once
        "is_of_profiler": pl.Boolean,  # false: CUDA itself loads or compiles code
        "time_ns": pl.Int64,
        "count": pl.Int64,
        "step_ns": pl.Int64,  # length of the step on the lane; null outside
    },
    name="OVERHEAD_TIMES",
)

HOST_TIMES = build_schema(
    {  # activities of launching threads in bubbles of causes "host" and "data"; by lane, cause, activity, name
        "lane": pl.UInt32,
        "cause": CAUSE,
        "activity": HOST_ACTIVITY,  # null: the row of the bubbles themselves
        "name": pl.String,
        "time_ns": pl.Int64,  # in the bubbles, without the time of activities inside it; null for samples
        "count": pl.Int64,  # bubbles with it; samples
    },
    name="HOST_TIMES",
)
