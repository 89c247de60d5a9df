"""Small trainings of one step, built from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import COVER, LANE_STATES, LANES, RUN_JOBS, RUN_STEPS, Training
from tests.training.expected_training import simulate_training

Row = tuple[int, str, int, int, int | None]  # lane, cause, start, end, whom it waits for


def build_small_training(rows: Sequence[Row], jobs: Sequence[tuple[int, str, int, int]] = ()) -> Training:
    """Build a training of one step from lane states, and jobs of (lane, kind, start, end)."""
    lane_states = pl.DataFrame(
        [
            {"lane": lane, "step": 0, "cause": cause, "start_ns": start, "end_ns": end, "waits_for": late}
            for lane, cause, start, end, late in rows
        ],
        schema=LANE_STATES,
    )
    steps = lane_states.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    lanes = pl.DataFrame(
        [{"lane": lane, "stage": lane} for lane in sorted({row[0] for row in rows})], schema=LANES
    )
    run = pl.DataFrame(
        [
            {"job": at, "lane": lane, "kind": kind, "compute_start_ns": start, "compute_end_ns": end}
            for at, (lane, kind, start, end) in enumerate(jobs)
        ],
        schema=RUN_JOBS,
    )
    return replace(
        simulate_training(),
        lanes=lanes,
        lane_states=lane_states,
        cover=COVER.to_frame(),
        steps=conform(steps.with_columns(is_partial=pl.lit(False), source=pl.lit("range")), RUN_STEPS),
        jobs=run,
        zero_ns=0,
    )
