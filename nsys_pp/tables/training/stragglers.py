"""Stragglers: stages, ranks and links that are slower than their peers, waiting not counted.

The own compute of a lane includes no communication, so a lane that waits for a slow one is not slow itself. Stages,
ranks and links are compared with the median of their peers, step by step (micro-batch by micro-batch of a
single step): a delay of all peers marks none as slow.

    stage    own compute per micro-batch of its fastest lane; peers: the other stages
    rank     own compute per micro-batch; peers: the other lanes of its stage
    link     transfer of a message; peers: the other links of its kind (`link_table.py`)

The fastest lane of a stage counts, as one slow rank does not make a slow stage. A pipeline is as fast as its
slowest stage.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training
from nsys_pp.tables.noise import median_of_others, noise_of_median, summarise_samples
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.link_table import build_link_table, link_noise_ns
from nsys_pp.tables.training.own_compute import has_all_jobs, list_own_jobs, sum_own_compute

LEAST_STAGE_EXCESS = 0.05
"""Least excess of a slow stage: the first stage has the embedding and the last one the loss, so they rarely agree."""
LEAST_RANK_EXCESS = 0.03
"""Least excess of a slow rank."""
_FEW_STEPS = 2
_MOMENT = ("step", "micro_batch")  # of a sample of own compute
STRAGGLER_KIND = pl.Enum(["stage", "rank", "link"])
_COLUMNS = (
    Column(
        "what", STRAGGLER_KIND, "stage, rank (compared with the ranks of its stage), or link", heading="Kind"
    ),
    Column("label", pl.String, "name of the stage, rank or link", heading="Straggler"),
    Column("stage", pl.Int64, "the stage, or that of the rank, or of the sender of a link"),
    Column("lane", pl.UInt32, "lane of a rank, or of the sender of a link"),
    Column("receiver", pl.UInt32, "lane of the receiver of a link"),
    Column(
        "value_ns",
        pl.Float64,
        "own compute per micro-batch, or transfer of a message; median",
        heading="Own",
        display_unit="ms",
    ),
    Column("usual_ns", pl.Float64, "the same for its peers; median", heading="Peers", display_unit="ms"),
    Column(
        "excess_fraction",
        pl.Float64,
        "relative excess over its peers; median",
        heading="Longer",
        decimals=1,
    ),
    Column(
        "noise_fraction",
        pl.Float64,
        "excess that noise explains; null with a single sample",
        decimals=1,
        priority=4,
    ),
    Column(
        "bound_ns",
        pl.Int64,
        "error of the value from the alignment of clocks: 0 within a lane; null: unknown",
        heading="Clock error",
        display_unit="us",
        priority=4,
    ),
    Column(
        "sample_count",
        pl.Int64,
        "complete steps, micro-batches of a single or of cut steps, or messages",
        priority=3,
    ),
    Column(
        "is_slow",
        pl.Boolean,
        "slower than its peers, beyond noise and bound",
        heading="Slow",
        is_optional=True,
        priority=4,
    ),
)


def find_stragglers(training: Training) -> pl.DataFrame:
    """Compare every stage, rank and link with its peers.

    Returns:
        Rows of `STRAGGLER_TABLE`, one per stage, rank and link with peers; slow ones first, then by kind and the
        largest excess.
    """
    own = _list_samples(training)
    stages = own.group_by("stage", *_MOMENT).agg(pl.col("value_ns").min())
    compared = pl.concat([_slow_stages(stages), _slow_ranks(own, training), _slow_links(training)])
    return compared.sort(
        "is_slow", "what", "excess_fraction", "label", descending=[True, False, True, False]
    ).pipe(conform, build_table_schema(_COLUMNS))


def _list_samples(training: Training) -> pl.DataFrame:
    """List the samples of own compute: one per lane and complete step, or per micro-batch.

    Micro-batches are compared where there is one step, or every step is cut; only those with all their jobs.

    Returns:
        lane, stage, `_MOMENT` (step, and micro_batch, 0 in samples of steps), value_ns.
    """
    complete = sum_lane_steps(training).filter("is_complete").select("lane", "step", "is_whole")
    if complete["step"].n_unique() < _FEW_STEPS or not complete["is_whole"].all():
        own = (
            list_own_jobs(training)
            .drop_nulls("micro_batch")
            .group_by("lane", "stage", *_MOMENT)
            .agg(value_ns=pl.col("compute_ns").sum(), job_count=pl.len())
            .join(complete, on=["lane", "step"])
            .filter(pl.col("is_whole") | has_all_jobs())
        )
    else:
        value = pl.col("compute_ns") / pl.col("micro_batch_count")
        own = sum_own_compute(training).with_columns(value_ns=value, micro_batch=pl.lit(0, pl.Int64))
        own = own.join(complete, on=["lane", "step"], how="semi")
    own = own.filter(pl.col("value_ns") > 0)
    return own.select("lane", "stage", *_MOMENT, pl.col("value_ns").cast(pl.Float64))


def _slow_stages(stages: pl.DataFrame) -> pl.DataFrame:
    compared = _compare(stages, member="stage", by=list(_MOMENT), least=LEAST_STAGE_EXCESS)
    return compared.select(
        pl.lit("stage").alias("what"),
        pl.format("stage {}", "stage").alias("label"),
        "stage",
        pl.lit(None).alias("lane"),
        pl.lit(None).alias("receiver"),
        *(column.name for column in _COLUMNS[5:]),
    ).pipe(conform, build_table_schema(_COLUMNS))


def _slow_ranks(own: pl.DataFrame, training: Training) -> pl.DataFrame:
    compared = _compare(own, member="lane", by=["stage", *_MOMENT], least=LEAST_RANK_EXCESS)
    return (
        compared.join(training.lanes.select("lane", "label", "stage"), on="lane", how="left")
        .with_columns(what=pl.lit("rank"), receiver=pl.lit(None))
        .pipe(conform, build_table_schema(_COLUMNS))
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
        .then(link_noise_ns() / pl.col("usual_transfer_ns"))
        .alias("noise_fraction"),
        "bound_ns",
        pl.col("timed_count").alias("sample_count"),
        "is_slow",
    ).pipe(conform, build_table_schema(_COLUMNS))


def _compare(values: pl.DataFrame, *, member: str, by: list[str], least: float) -> pl.DataFrame:
    """Compare `value_ns` of each member with the median of its peers, the others of its group, over all steps."""
    usual = median_of_others(values, by=by, value="value_ns").alias("usual_ns")
    samples = values.with_columns(usual).drop_nulls("usual_ns")
    samples = samples.with_columns(excess=pl.col("value_ns") / pl.col("usual_ns") - 1)
    medians = samples.group_by(member).agg(pl.col("value_ns", "usual_ns").median())
    excess = pl.col("excess_fraction")
    # of one sample, the noise is unknown
    is_slow = (excess > pl.max_horizontal(pl.lit(least), "noise_fraction")) & pl.col(
        "noise_fraction"
    ).is_not_null()
    return (
        summarise_samples(samples, by=[member], value="excess")
        .rename({"median": "excess_fraction"})
        .with_columns(noise_fraction=noise_of_median(pl.col("deviation"), pl.col("sample_count")))
        .with_columns(is_slow=is_slow, bound_ns=pl.lit(0))
        .join(medians, on=member)
    )


STRAGGLER_TABLE = Table(
    name="stragglers",
    title="Stragglers: stages, ranks and links compared with their peers",
    columns=_COLUMNS,
    caption=(
        "own compute per micro-batch, or transfer of a message, compared with the median of the peers;"
        " waiting time is not counted; medians over all complete steps: a finding of the verdict that is true since some"
        " step, or in some steps only, has the excess of these steps"
    ),
    build=find_stragglers,
    view=View(
        columns=(
            *(
                "what",
                "value_ns",
                "usual_ns",
                "excess_fraction",
                "noise_fraction",
                "bound_ns",
                "sample_count",
            ),
            *("is_slow", "label"),
        ),
        only=pl.col("is_slow"),
        hidden="{} within noise of their peers over all steps",
    ),
)
