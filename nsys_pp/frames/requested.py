"""Frames of tables on request: metrics of GPUs, and activities of hosts."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.causes import CAUSE
from nsys_pp.frames.conform import build_schema

METRIC_GROUPS = ("steps", "compute", "jobs", "phases", "families", "bubbles")
"""Groups of time in which metrics are measured."""

MEASURED_TIMES = build_schema(
    {  # intervals of lanes in which metrics are measured; any order
        "lane": pl.UInt32,
        "group": pl.String,  # of `METRIC_GROUPS`
        "item": pl.String,  # kind of jobs or phases, family of kernels, or cause of bubbles; null: steps, compute
        "step": pl.Int64,  # of `RUN_STEPS`, in groups "steps", "compute" and "families", in which the intervals of an item do not overlap; else null
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

HOST_ACTIVITY = pl.Enum(
    ["range", "call", "OS call", "state", "stack", "sample", "sample stack", "other thread"]
)
"""Activities of a thread: NVTX ranges, CUDA calls, calls of the operating system, states, stacks of these calls, functions and stacks
of CPU samples; and what other threads of the program did meanwhile."""

HOST_TIMES = build_schema(
    {  # activities of hosts in bubbles of causes "host" and "data"; by lane, step, cause, activity, name
        "lane": pl.UInt32,
        "step": pl.Int64,  # of `RUN_STEPS`
        "cause": CAUSE,
        "activity": HOST_ACTIVITY,  # null: the row of the bubbles themselves
        "name": pl.String,
        # In the bubbles, without the time of activities inside it; null for samples. Of other threads with one name: the mean.
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
        "collective_bytes": pl.Int64,  # data of collectives of the machine's ranks, by NCCL's payloads; null: unknown
    },
    name="NETWORK_SUMS",
)
