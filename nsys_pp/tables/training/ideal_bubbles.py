"""Bubbles of ideal runs, in which nothing but the jobs takes time."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema, conform

IDEAL_BUBBLES = build_schema(
    {  # one row per step and lane; by step, lane
        "lane": pl.UInt32,
        "step": pl.Int64,
        "span_ns": pl.Int64,  # length of the step until the last lane is done; equal on all lanes
        "busy_ns": pl.Int64,  # sum of the jobs of the lane
        "bubble_ns": pl.Int64,
        "bubble_fraction": pl.Float64,  # share of the span
    },
    name="IDEAL_BUBBLES",
)


def ideal_bubbles(ideal: pl.DataFrame) -> pl.DataFrame:
    """Compute the bubble of each lane in the ideal run of each step.

    Args:
        ideal: `IDEAL`.

    Returns:
        `IDEAL_BUBBLES`. With equal durations the fraction is (p-1)/(m+p-1) for GPipe and 1F1B of p stages and
        m micro-batches, and (p-1)/(cm+p-1) for interleaved 1F1B of c chunks.
    """
    of_step = ideal.group_by("step").agg(span_ns=pl.col("end_ns").max() - pl.col("start_ns").min())
    of_lane = ideal.group_by("lane", "step").agg(busy_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    joined = of_lane.join(of_step, on="step").with_columns(bubble_ns=pl.col("span_ns") - pl.col("busy_ns"))
    bubbles = joined.with_columns(bubble_fraction=(pl.col("bubble_ns") / pl.col("span_ns")).fill_nan(0.0))
    return conform(bubbles.sort("step", "lane"), IDEAL_BUBBLES)
