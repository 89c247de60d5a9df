"""Slow stages, slow ranks and slow links, after taking away what waiting for others explains.

Own compute of a lane holds no communication, so whoever waits for a slow one is not slow itself. Each one is
held against the median of the others that do the same work, step by step, so that what slows all of them down
at once blames none:

    stage    own compute per micro-batch of its fastest lane, against the other stages
    rank     own compute per micro-batch, against the other lanes of its stage
    link     transfer of a message, against the other links of its kind (`link_table.py`)

Of a stage the fastest lane counts, as one slow rank makes no slow stage. A pipeline runs at the pace of its
slowest stage.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import Training
from nsys_pp.tables.compare.noise import median_of_others, noise_of_median, summarise_samples
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.link_table import build_link_table
from nsys_pp.tables.training.own_compute import sum_own_compute
from nsys_pp.tables.training.table import Columns, build_table, schema_of

LEAST_STAGE_EXCESS = 0.05
"""Stages are rarely alike: the last one has the loss, the first one the embedding."""
LEAST_RANK_EXCESS = 0.03
UNSURE_EXCESS = 0.1
"""Where one step does not tell how much is noise, only more than this is flagged."""

WHAT = pl.Enum(["stage", "rank", "link"])
_COLUMNS: Columns = {
    "what": (WHAT, "what it is: a stage, a rank among those of its stage, or a link"),
    "label": (pl.String, "its name"),
    "stage": (pl.Int64, "of a stage, a rank, or the sender of a link"),
    "lane": (pl.UInt32, "of a rank, or the sender of a link"),
    "receiver": (pl.UInt32, "of a link: lane"),
    "value_ns": (pl.Float64, "its own compute per micro-batch, or the transfer of a message; median"),
    "usual_ns": (pl.Float64, "the same of the others; median"),
    "excess_fraction": (pl.Float64, "how much longer it takes than the others; median"),
    "noise_fraction": (
        pl.Float64,
        "excess that noise explains; null where one step or message is all there is",
    ),
    "bound_ns": (
        pl.Int64,
        "error of the value from the alignment of clocks: 0 within a lane; null where unknown",
    ),
    "sample_count": (pl.Int64, "complete steps, or messages"),
    "is_slow": (pl.Boolean, "slower than the others, beyond noise and bound"),
}


def find_stragglers(training: Training) -> pl.DataFrame:
    """Hold every stage, rank and link against others that do the same.

    Returns:
        One row per stage, rank and link that has others to be held against; slow ones first, then by what
        they are and the largest excess. `STRAGGLER_TABLE` says what its columns mean.
    """
    complete = sum_lane_steps(training).filter("is_complete").select("lane", "step")
    own = (
        sum_own_compute(training)
        .join(complete, on=["lane", "step"], how="semi")
        .with_columns(value_ns=pl.col("compute_ns") / pl.col("micro_batch_count"))
        .filter(pl.col("value_ns") > 0)
    )
    stages = own.group_by("stage", "step").agg(pl.col("value_ns").min())
    found = pl.concat([_slow_stages(stages), _slow_ranks(own, training), _slow_links(training)])
    return found.sort(
        "is_slow", "what", "excess_fraction", "label", descending=[True, False, True, False]
    ).pipe(conform, schema_of(_COLUMNS))


def _slow_stages(stages: pl.DataFrame) -> pl.DataFrame:
    compared = _compare(stages, member="stage", by=["step"], least=LEAST_STAGE_EXCESS)
    return compared.select(
        pl.lit("stage").alias("what"),
        pl.format("stage {}", "stage").alias("label"),
        "stage",
        pl.lit(None).alias("lane"),
        pl.lit(None).alias("receiver"),
        *list(_COLUMNS)[5:],
    ).pipe(conform, schema_of(_COLUMNS))


def _slow_ranks(own: pl.DataFrame, training: Training) -> pl.DataFrame:
    compared = _compare(own, member="lane", by=["stage", "step"], least=LEAST_RANK_EXCESS)
    return (
        compared.join(training.lanes.select("lane", "label", "stage"), on="lane", how="left")
        .with_columns(what=pl.lit("rank"), receiver=pl.lit(None))
        .pipe(conform, schema_of(_COLUMNS))
    )


def _slow_links(training: Training) -> pl.DataFrame:
    links = build_link_table(training).drop_nulls("usual_transfer_ns")
    return links.select(
        pl.lit("link").alias("what"),
        pl.col("link").alias("label"),
        pl.col("sender_stage").alias("stage"),
        pl.col("sender").alias("lane"),
        "receiver",
        pl.col("median_transfer_ns").alias("value_ns"),
        pl.col("usual_transfer_ns").alias("usual_ns"),
        "excess_fraction",
        pl.when(pl.col("timed_count") > 1)
        .then(3 * pl.col("spread_ns") / pl.col("usual_transfer_ns"))
        .alias("noise_fraction"),
        "bound_ns",
        pl.col("timed_count").alias("sample_count"),
        "is_slow",
    ).pipe(conform, schema_of(_COLUMNS))


def _compare(values: pl.DataFrame, *, member: str, by: list[str], least: float) -> pl.DataFrame:
    """Hold `value_ns` of each member against the median of the others of its group, and sum up over steps."""
    usual = median_of_others(values, by=by, value="value_ns").alias("usual_ns")
    samples = values.with_columns(usual).drop_nulls("usual_ns")
    samples = samples.with_columns(excess=pl.col("value_ns") / pl.col("usual_ns") - 1)
    medians = samples.group_by(member).agg(pl.col("value_ns", "usual_ns").median())
    excess = pl.col("excess_fraction")
    is_sure = excess > pl.max_horizontal(pl.lit(least), "noise_fraction")
    is_slow = pl.when(pl.col("noise_fraction").is_null()).then(excess > UNSURE_EXCESS).otherwise(is_sure)
    return (
        summarise_samples(samples, by=[member], value="excess")
        .rename({"median": "excess_fraction"})
        .with_columns(noise_fraction=noise_of_median(pl.col("deviation"), pl.col("sample_count")))
        .with_columns(is_slow=is_slow, bound_ns=pl.lit(0))
        .join(medians, on=member)
    )


STRAGGLER_TABLE = build_table("Stages, ranks and links against their likes", _COLUMNS, find_stragglers)
