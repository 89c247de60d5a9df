"""Frames of tables on request: metrics of GPUs, and activities of hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import CAUSE

METRIC_GROUPS = ("steps", "compute", "jobs", "families", "bubbles")
"""Groups of time in which metrics are measured."""

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

HOST_ACTIVITY = pl.Enum(
    ["range", "call", "OS call", "state", "stack", "sample", "sample stack", "other thread"]
)
"""Activities of a thread.

NVTX ranges, CUDA calls, calls of the operating system, states, stacks of these calls, functions and stacks
of CPU samples; and what other threads of the program did meanwhile."""

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


NONE = Explanations()
"""Nothing is recorded, or reports are not to be read once more."""
