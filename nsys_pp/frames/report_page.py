"""Frames and records behind the plots of a report page: ranks over steps, and the steps whose charts are shown."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema

RANK_STEPS = build_schema(
    {  # one row per lane and step, or per lane and block of steps; by lane, step
        "lane": pl.UInt32,
        "step": pl.Int64,  # first step of a block
        "last_step": pl.Int64,  # last step of it
        "start_ns": pl.Int64,  # of the lane's step, since the start of the earliest session
        "end_ns": pl.Int64,
        # Means over the steps of a block:
        "span_ns": pl.Float64,
        "compute_ns": pl.Float64,  # kernels other than communication
        "bubble_ns": pl.Float64,
        "wait_ns": pl.Float64,  # part of it: messages and collectives, their transfers included
        "late_ns": pl.Float64,  # part of it: late launches, and loading of data
        # Own compute relative to the median of the peers for the same micro-batch, less 1; the median over micro-batches,
        # the largest one of the steps of a block. Peers are the other ranks of the stage, else all other ranks. Null
        # without peers, and in steps that are not complete.
        "excess_fraction": pl.Float64,
        # The capture cuts no rank in this step; where it cuts every step on some rank, not this one.
        "is_complete": pl.Boolean,
    },
    name="RANK_STEPS",
)


STEP_LENGTHS = build_schema(
    {  # one row per complete step, by step
        "step": pl.Int64,
        # From the start on the first lane to the end on the last one, as in the table "steps". If clocks of some lanes cannot be
        # compared, the median of the lengths on lanes, for all steps.
        "span_ns": pl.Float64,
    },
    name="STEP_LENGTHS",
)


class ShownStep(Struct, frozen=True, kw_only=True):
    """A step whose chart is shown.

    Attributes:
        step: Its number.
        role: "typical" (of median length) or "worst" (the longest).
        span_ns: Its length in `STEP_LENGTHS`.
        start_ns: Start on its first lane, since the start of the earliest session.
        end_ns: End on its last lane, likewise.
    """

    step: int
    role: str
    span_ns: float
    start_ns: int
    end_ns: int
