"""Frames of all reports of a run, concatenated: times on the trace's clock, rows by report or by lane.

`JOBS` and the like come from one report, where process and device name a GPU process. Here rows also have their
report; once lanes are known, the lane replaces report, process and device, and `step` is that of `RUN_STEPS`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.frames.batches import BATCHES
from nsys_pp.frames.causes import GAPS, WAITS
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import Schema, extend_schema
from nsys_pp.frames.overheads import OVERHEAD_SUMS
from nsys_pp.frames.phases import PHASES
from nsys_pp.frames.roster import ROSTER
from nsys_pp.frames.training import (
    COMPUTE_SEGMENTS,
    JOBS,
    KERNEL_AGGREGATES,
    MESSAGES,
    REPORT_FRAMES,
    RUN_JOBS,
    STEPS,
)

LANE_KEYS = ("report", "process_key", "device_id")


def _by_lane(schema: pl.Schema, name: str) -> Schema:
    return extend_schema(schema, {"lane": pl.UInt32}, name=name, without=LANE_KEYS)


LANE_JOBS = _by_lane(JOBS, "LANE_JOBS")
LANE_STEPS = _by_lane(
    STEPS, "LANE_STEPS"
)  # `step` is that of its report: `STEP_NUMBERS` has those of the run
LANE_PHASES = _by_lane(PHASES, "LANE_PHASES")
LANE_BATCHES = _by_lane(BATCHES, "LANE_BATCHES")
LANE_COMPUTE_SEGMENTS = _by_lane(COMPUTE_SEGMENTS, "LANE_COMPUTE_SEGMENTS")
LANE_WAITS = _by_lane(WAITS, "LANE_WAITS")
LANE_GAPS = _by_lane(GAPS, "LANE_GAPS")
LANE_MESSAGES = _by_lane(MESSAGES, "LANE_MESSAGES")
LANE_KERNELS = _by_lane(KERNEL_AGGREGATES, "LANE_KERNELS")
LANE_OVERHEADS = _by_lane(OVERHEAD_SUMS, "LANE_OVERHEADS")
LANE_ANCHORS = _by_lane(ANCHORS, "LANE_ANCHORS")

LANE_FRAMES: Mapping[str, Schema] = {
    "jobs": LANE_JOBS,
    "steps": LANE_STEPS,
    "batches": LANE_BATCHES,
    "phases": LANE_PHASES,
    "compute_segments": LANE_COMPUTE_SEGMENTS,
    "waits": LANE_WAITS,
    "gaps": LANE_GAPS,
    "messages": LANE_MESSAGES,
    "kernels": LANE_KERNELS,
    "overheads": LANE_OVERHEADS,
    "anchors": LANE_ANCHORS,
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
