"""Analysis of a run that tables and verdict share.

Which steps of a lane are whole, own compute, ideal bubbles.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import BUBBLE_CAUSES, CAUSES, MICRO_BATCH_KINDS, POSITION, Training

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
        # complete, and the capture does not cut it on this lane: its sums can be compared
        "is_whole": pl.Boolean,
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
        `LANE_STEPS` that are whole; all where the capture cuts every step on every lane, so that such
        captures have results, too.
    """
    steps = sum_lane_steps(training)
    return steps.filter("is_whole") if steps["is_whole"].any() else steps


def sum_lane_steps(training: Training) -> pl.DataFrame:
    """Sum the lane states of every lane and step by cause and by position.

    Returns:
        `LANE_STEPS`. If every step is cut on some lane, all steps count as complete, but only lanes that are
        not cut there are whole.
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


OWN_COMPUTE = build_schema(
    {  # one row per lane of a known stage and step, complete or not; by step, lane
        "lane": pl.UInt32,
        "stage": pl.Int64,
        "step": pl.Int64,
        "compute_ns": pl.Int64,  # compute of its jobs: kernels other than communication
        "cycle_ns": pl.Int64,  # sum over its jobs of the time from the first to the last such kernel
        "micro_batch_count": pl.Int64,  # at least 1
    },
    name="OWN_COMPUTE",
)


def select_outermost(jobs: pl.DataFrame, kinds: Collection[str]) -> pl.DataFrame:
    """Select the jobs of these kinds that compute; only the outer one of nested jobs."""
    chosen = jobs.filter(pl.col("kind").is_in(kinds), pl.col("compute_start_ns").is_not_null())
    if chosen["outer"].null_count() == len(chosen):
        return chosen
    return chosen.join(chosen.select(outer="job"), on="outer", how="anti")


def has_all_jobs() -> pl.Expr:
    """Return whether a row of a micro-batch counts as many jobs (`job_count`) as any.

    `micro_batch` is 0 or more.

    In a step that the capture cuts, the forward of a micro-batch may lie before it, and its backward is
    recorded.
    """
    is_numbered = pl.col("micro_batch") >= 0
    return is_numbered & (pl.col("job_count") == pl.col("job_count").filter(is_numbered).max())


def list_own_jobs(training: Training) -> pl.DataFrame:
    """List the outermost jobs of micro-batches in steps of lanes of known stages: `RUN_JOBS` with stage."""
    return (
        select_outermost(training.jobs, MICRO_BATCH_KINDS)
        .join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .filter(pl.col("stage").is_not_null(), pl.col("step").is_not_null())
    )


def sum_own_compute(training: Training) -> pl.DataFrame:
    """Sum the own compute of each lane in each step.

    Returns:
        `OWN_COMPUTE`. The number of micro-batches is that of the schedule, otherwise that of the jobs.
    """
    scheduled = training.schedule.micro_batch_count
    micro_batch_count = pl.lit(scheduled) if scheduled else pl.col("micro_batch").n_unique()
    return (
        list_own_jobs(training)
        .group_by("lane", "stage", "step")
        .agg(
            pl.col("compute_ns").sum(),
            cycle_ns=(pl.col("compute_end_ns") - pl.col("compute_start_ns")).sum(),
            micro_batch_count=micro_batch_count,
        )
        .sort("step", "lane")
        .pipe(conform, OWN_COMPUTE)
    )
