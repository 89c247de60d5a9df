"""Sums of compute, bubble and causes per lane and step, for tables and comparisons."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import BUBBLE_CAUSES, CAUSES, POSITION, Training
from nsys_pp.tables.training.ideal_bubbles import ideal_bubbles

CAUSE_COLUMNS = tuple(f"{cause}_ns" for cause in CAUSES)
POSITION_COLUMNS = tuple(f"{name.replace('-', '_')}_bubble_ns" for name in POSITION.categories)

LANE_STEPS = build_schema(
    {  # one row per lane and step; by step, lane
        "lane": pl.UInt32,
        "stage": pl.Int64,  # null where unknown
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "is_complete": pl.Boolean,  # the capture cuts no lane in this step; all true if every step is cut
        "is_whole": pl.Boolean,  # complete, and the capture does not cut it on this lane: its sums can be compared
        "span_ns": pl.Int64,  # the sum of the causes below
        **dict.fromkeys(CAUSE_COLUMNS, pl.Int64),
        # Span without compute and pauses: the sum of the positions below, unless the step has no forwards and
        # backwards, and therefore no positions.
        "bubble_ns": pl.Int64,
        **dict.fromkeys(POSITION_COLUMNS, pl.Int64),
        "ideal_span_ns": pl.Int64,  # length of the step on all lanes in `IDEAL`; null where `IDEAL` lacks it
        "ideal_bubble_ns": pl.Int64,  # part of it outside of jobs of the lane
    },
    name="LANE_STEPS",
)


def select_whole_steps(training: Training) -> pl.DataFrame:
    """Select the lane steps that a table averages.

    Returns:
        `LANE_STEPS` that are whole; all where the capture cuts every step on every lane, so that such captures have results, too.
    """
    steps = sum_lane_steps(training)
    return steps.filter("is_whole") if steps["is_whole"].any() else steps


def sum_lane_steps(training: Training) -> pl.DataFrame:
    """Sum the lane states of every lane and step by cause and by position.

    Returns:
        `LANE_STEPS`. If every step is cut on some lane, all steps count as complete, but only lanes that are not cut there are whole.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    sums = (
        training.lane_states.group_by("lane", "step", "cause", "position")
        .agg(total_ns=duration.sum())
        .group_by("lane", "step")
        .agg(
            *(_total(cause=cause).alias(f"{cause}_ns") for cause in CAUSES),
            *(
                pl.col("total_ns")
                .filter(pl.col("cause").is_in(BUBBLE_CAUSES), position=position)
                .sum()
                .alias(column)
                for position, column in zip(POSITION.categories, POSITION_COLUMNS, strict=True)
            ),
        )
    )
    return (
        training.steps.join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .join(sums, on=["lane", "step"], how="left")
        .join(
            training.cover.select("lane", "step", "pause_ns"),
            on=["lane", "step"],
            how="left",
            suffix="_inside",
        )
        .join(_ideal(training.ideal), on=["lane", "step"], how="left")
        .with_columns(
            pl.col(*CAUSE_COLUMNS, *POSITION_COLUMNS, "pause_ns_inside").fill_null(0),
            span_ns=duration,
            is_cut=pl.col("is_partial").any().over("step"),
        )
        .with_columns(
            compute_ns=pl.col("compute_ns") - pl.col("pause_ns_inside"),
            pause_ns=pl.col("pause_ns") + pl.col("pause_ns_inside"),
        )
        .with_columns(
            is_complete=pl.when(pl.col("is_cut").all()).then(True).otherwise(~pl.col("is_cut")),
            bubble_ns=pl.sum_horizontal(f"{cause}_ns" for cause in BUBBLE_CAUSES),
        )
        .with_columns(is_whole=pl.col("is_complete") & ~pl.col("is_partial"))
        .sort("step", "lane")
        .pipe(conform, LANE_STEPS)
    )


def _total(*, cause: str) -> pl.Expr:
    return pl.col("total_ns").filter(cause=cause).sum()


def _ideal(ideal: pl.DataFrame) -> pl.DataFrame:
    """Return the ideal bubbles under the column names of `LANE_STEPS`."""
    return ideal_bubbles(ideal).select("lane", "step", ideal_span_ns="span_ns", ideal_bubble_ns="bubble_ns")
