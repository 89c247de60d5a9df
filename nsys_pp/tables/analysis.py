"""Analysis of a run that tables and verdict share.

Which steps of a lane are whole, own compute, ideal bubbles.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    MICRO_BATCH_KINDS,
    POSITION,
    SCHEDULED_KINDS,
    Training,
)
from nsys_pp.tables.noise import Compared, compare_members, relate_to_peers

LEAST_RANK_EXCESS, LEAST_STAGE_EXCESS, LEAST_UNKNOWN_EXCESS = 0.03, 0.05, 0.1
"""Least excess of a slow rank, a slow stage, and a slow rank whose stage is unknown."""
_JOB_COLUMNS = ("job", "outer", "kind", "lane", "step", "micro_batch", "compute_start_ns", "compute_ns")

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


def select_outermost(jobs: pl.DataFrame, kinds: Collection[str]) -> pl.DataFrame:
    """Select the jobs of these kinds that compute; only the outer one of nested jobs."""
    chosen = jobs.filter(pl.col("kind").is_in(kinds), pl.col("compute_start_ns").is_not_null())
    if chosen["outer"].null_count() == len(chosen):
        return chosen
    return chosen.join(chosen.select(outer="job"), on="outer", how="anti")


def has_passes(training: Training) -> bool:
    """Return whether forwards or backwards are known."""
    return bool(training.jobs["kind"].is_in(SCHEDULED_KINDS).any())


def list_own_compute(training: Training, lane_steps: pl.DataFrame) -> pl.DataFrame:
    """List the own compute of each lane in complete steps, waiting not counted.

    Args:
        training: The training.
        lane_steps: `LANE_STEPS` of it.

    Returns:
        lane, stage, step, micro_batch, value_ns, has_peers (false where a pipeline has no known stages: its
        ranks do different work): one row per micro-batch; -1 is work without a number. Of
        steps that the capture cuts on the lane, only micro-batches with all their jobs: the others would be
        compared with more or less work of others. Without forwards and backwards, all compute of a step that
        it does not cut is one row.
    """
    complete, whole = (lane_steps.filter(name) for name in ("is_complete", "is_whole"))
    if has_passes(training):
        is_numbered = pl.col("micro_batch") >= 0
        has_all_jobs = is_numbered & (pl.col("job_count") == pl.col("job_count").filter(is_numbered).max())
        own = (
            select_outermost(training.jobs.select(_JOB_COLUMNS), MICRO_BATCH_KINDS)
            .join(complete, on=["lane", "step"], how="semi")
            .group_by("lane", "step", pl.col("micro_batch").fill_null(-1))
            .agg(value_ns=pl.col("compute_ns").sum(), job_count=pl.len())
            .join(whole.select("lane", "step", "is_whole"), on=["lane", "step"], how="left")
            .filter(pl.col("is_whole").fill_null(value=False) | has_all_jobs)
        )
    else:
        own = whole.with_columns(micro_batch=pl.lit(-1, pl.Int64), value_ns="compute_ns")
    has_messages = training.lane_states["cause"].cast(pl.String).str.starts_with("message").any()
    has_peers = pl.col("stage").is_not_null() | (not has_messages)
    return (
        own.filter(pl.col("value_ns") > 0)
        .select("lane", "step", "micro_batch", pl.col("value_ns").cast(pl.Float64))
        .join(training.lanes.select("lane", "stage", has_peers=has_peers), on="lane")
    )


class Stragglers(Struct, frozen=True, kw_only=True):
    """Ranks with a known stage, ranks without one, and stages, compared with their peers.

    A stage counts by its fastest lane: one slow rank does not make a slow stage.
    """

    ranks: Compared
    guesses: Compared
    stages: Compared


def compare_own_compute(own: pl.DataFrame) -> Stragglers:
    """Compare the own compute of ranks and stages (`list_own_compute`) with their peers."""
    staged, unknown, fastest = _divide(own)
    return Stragglers(
        ranks=compare_members(staged, member="lane", group=["stage"], least=LEAST_RANK_EXCESS),
        guesses=compare_members(unknown, member="lane", group=[], least=LEAST_UNKNOWN_EXCESS),
        stages=compare_members(
            fastest, member="stage", group=[], least=LEAST_STAGE_EXCESS, spread_values=staged
        ),
    )


def find_excesses(own: pl.DataFrame) -> pl.DataFrame:
    """Find the relative excess of the own compute of each lane in each step over that of its peers.

    These are the other ranks of its stage; of a rank that is alone on its stage, the other stages; of ranks
    without a known stage, the other such ranks, unless messages show that they are of several stages.

    Returns:
        lane, step, excess_fraction; lanes without peers are left out.
    """
    staged, unknown, fastest = _divide(own)
    (_, ranks), (_, guesses) = (
        relate_to_peers(values, "lane", group) for values, group in ((staged, ["stage"]), (unknown, []))
    )
    _, stages = relate_to_peers(fastest, "stage", [])
    alone = staged.select("lane", "stage", "step").unique().join(ranks, on=["lane", "step"], how="anti")
    lanes = [ranks, guesses, alone.join(stages, on=["stage", "step"]).drop("stage")]
    return pl.concat(lanes).rename({"step_excess": "excess_fraction"})


def _divide(own: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Divide own compute: of lanes with a stage, of those without one, of the fastest lane of each stage."""
    staged = own.filter(pl.col("stage").is_not_null())
    fastest = staged.group_by("stage", "step", "micro_batch").agg(pl.col("value_ns").min())
    return staged, own.filter(pl.col("stage").is_null(), "has_peers"), fastest
