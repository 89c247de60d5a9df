"""A row per step of the whole run: how long it took, and how much of it was bubble."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import Training
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.own_compute import sum_own_compute
from nsys_pp.tables.training.table import Columns, build_table, schema_of

_COLUMNS: Columns = {
    "step": (pl.Int64, "its number"),
    "start_ns": (pl.Int64, "when its first lane begins, from the start of the earliest session"),
    "span_ns": (pl.Int64, "from its start on the first lane to its end on the last"),
    "lane_count": (pl.Int64, "lanes that have it"),
    "compute_fraction": (pl.Float64, "share of its time on a lane that kernels compute; mean of the lanes"),
    "bubble_fraction": (pl.Float64, "time without compute on all lanes, over time on all lanes"),
    "worst_bubble_fraction": (pl.Float64, "the same of the lane that has most"),
    "worst_lane": (pl.String, "that lane"),
    "ideal_bubble_fraction": (
        pl.Float64,
        "of the same jobs in the same order with nothing in between; null where unknown",
    ),
    "slowest_stage": (pl.Int64, "stage that computes longest per micro-batch; null where unknown"),
    "is_partial": (pl.Boolean, "a capture began or ended inside it"),
}


def build_step_table(training: Training) -> pl.DataFrame:
    """Make the table of steps, by step; `STEP_TABLE` says what its columns mean."""
    lanes = sum_lane_steps(training)
    bubble = pl.col("bubble_ns") / pl.col("span_ns")
    worst = bubble.fill_nan(None).arg_max()
    ideal = pl.col("ideal_bubble_ns").sum() / (pl.col("ideal_span_ns").sum())
    return (
        lanes.join(training.lanes.select("lane", "label"), on="lane", how="left")
        .join(training.steps.select("lane", "step", "is_partial"), on=["lane", "step"], how="left")
        .group_by("step")
        .agg(
            start_ns=pl.col("start_ns").min() - training.zero_ns,
            span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
            lane_count=pl.len(),
            compute_fraction=(pl.col("compute_ns") / pl.col("span_ns")).fill_nan(None).mean(),
            bubble_fraction=pl.col("bubble_ns").sum() / pl.col("span_ns").sum(),
            worst_bubble_fraction=bubble.get(worst),
            worst_lane=pl.col("label").get(worst),
            ideal_bubble_fraction=ideal,
            is_partial=pl.col("is_partial").any(),
        )
        .with_columns(pl.col("bubble_fraction", "ideal_bubble_fraction").fill_nan(None))
        .join(_slowest_stages(training), on="step", how="left")
        .sort("step")
        .pipe(conform, schema_of(_COLUMNS))
    )


def _slowest_stages(training: Training) -> pl.DataFrame:
    """Return `step`, `slowest_stage`: of each stage its fastest lane counts, as slow ranks are no slow stage."""
    return (
        sum_own_compute(training)
        .group_by("step", "stage")
        .agg(pl.col("compute_ns").min())
        .sort("step", "stage")
        .group_by("step")
        .agg(slowest_stage=pl.col("stage").get(pl.col("compute_ns").arg_max()))
    )


STEP_TABLE = build_table("Steps of the whole run", _COLUMNS, build_step_table)
