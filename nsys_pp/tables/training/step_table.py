"""Steps of the whole run: length and bubble of each."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.clock import list_comparable_steps
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training
from nsys_pp.tables.noise import noise_of_median, summarise_samples
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.own_compute import list_own_jobs

LEAST_EXCESS = 0.02
"""Stages that differ by less are equally slow."""
_LEAST_SAMPLES = 3  # micro-batches; noise of fewer is not known well

_COLUMNS = (
    Column("step", pl.Int64, "number of the step"),
    Column(
        "start_ns",
        pl.Int64,
        "start on its first lane, from the start of the earliest session; null if clocks of lanes cannot be compared",
        display_unit="ms",
        priority=2,
    ),
    Column(
        "span_ns",
        pl.Int64,
        "from the start on its first lane to the end on its last; null if clocks of lanes cannot be compared",
        display_unit="ms",
    ),
    Column("lane_count", pl.Int64, "lanes that run it", priority=2),
    Column(
        "compute_fraction",
        pl.Float64,
        "share of its time on a lane in which kernels compute; mean of the lanes",
        decimals=1,
    ),
    Column(
        "bubble_fraction", pl.Float64, "time without compute on all lanes, over time on all lanes", decimals=1
    ),
    Column(
        "worst_bubble_fraction",
        pl.Float64,
        "bubble fraction of the lane with the largest one",
        heading="Worst",
        decimals=1,
    ),
    Column(
        "worst_lane",
        pl.String,
        "name of that lane: it waits, and need not be the cause",
        note="worst: the lane with most bubble",
    ),
    Column(
        "ideal_bubble_fraction",
        pl.Float64,
        "bubble fraction of the same jobs in the same order without gaps between them; null: unknown",
        heading="Ideal",
        decimals=1,
        note="ideal: the same jobs in the same order without gaps",
    ),
    Column(
        "slowest_stage",
        pl.Int64,
        "stage with the longest compute per micro-batch; null: within noise of another one, or unknown",
        priority=4,
    ),
    Column(
        "source",
        pl.String,
        "source of a step without a range: jobs, repetition of launches, or the whole capture; null: a range",
        priority=4,
    ),
    Column(
        "is_partial",
        pl.Boolean,
        "a capture began or ended inside it",
        heading="Partial",
        priority=4,
        is_optional=True,
    ),
)


def build_step_table(training: Training) -> pl.DataFrame:
    """Build the rows of `STEP_TABLE`, by step."""
    lanes = sum_lane_steps(training)
    bubble = pl.col("bubble_ns") / pl.col("span_ns")
    worst = bubble.fill_nan(None).arg_max()
    ideal = pl.col("ideal_bubble_ns").sum() / (pl.col("ideal_span_ns").sum())
    comparable = list_comparable_steps(training.steps, training.lanes)
    return (
        lanes.join(training.lanes.select("lane", "label"), on="lane", how="left")
        .join(training.steps.select("lane", "step", "is_partial", "source"), on=["lane", "step"], how="left")
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
            source=pl.col("source").max().cast(pl.String).replace("range", None),
            is_partial=pl.col("is_partial").any(),
        )
        .with_columns(
            pl.col("bubble_fraction", "ideal_bubble_fraction").fill_nan(None),
            pl.when(pl.col("step").is_in(comparable["step"].implode())).then(pl.col("start_ns", "span_ns")),
        )
        .join(_slowest_stages(training), on="step", how="left")
        .sort("step")
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def _slowest_stages(training: Training) -> pl.DataFrame:
    """Return the slowest stage of each step, where it exceeds all others beyond noise: step, slowest_stage.

    A stage counts by its fastest lane: one slow rank does not make a slow stage. The two slowest stages are compared micro-batch
    by micro-batch. Without a second stage or micro-batch, noise is unknown.
    """
    own = list_own_jobs(training).drop_nulls("micro_batch")
    stages = (
        own.group_by("step", "stage", "micro_batch", "lane")
        .agg(pl.col("compute_ns").sum())
        .group_by("step", "stage", "micro_batch")
        .agg(pl.col("compute_ns").min())
    )
    totals = stages.group_by("step", "stage").agg(pl.col("compute_ns").sum())
    ranked = totals.sort("step", "compute_ns", "stage", descending=[False, True, False])
    two = ranked.group_by("step").agg(
        slowest_stage=pl.col("stage").first(), second=pl.col("stage").get(1, null_on_oob=True)
    )
    on = ["step", "micro_batch"]
    pairs = (
        stages.join(two, left_on=["step", "stage"], right_on=["step", "slowest_stage"])
        .join(stages, left_on=[*on, "second"], right_on=[*on, "stage"], suffix="_of_second")
        .filter(pl.col("compute_ns_of_second") > 0)
        .with_columns(excess=pl.col("compute_ns") / pl.col("compute_ns_of_second") - 1)
    )
    noise = noise_of_median(pl.col("deviation"), pl.col("sample_count"))
    beyond = summarise_samples(pairs, by=["step"], value="excess").filter(
        pl.col("sample_count") >= _LEAST_SAMPLES,
        pl.col("median") > pl.max_horizontal(pl.lit(LEAST_EXCESS), noise),
    )
    return two.join(beyond, on="step", how="semi").select("step", "slowest_stage")


STEP_TABLE = Table(
    name="steps",
    title="Steps of the whole run",
    columns=_COLUMNS,
    caption="bubble: time in the step without computing kernels, over all lanes",
    build=build_step_table,
    view=View(
        columns=(
            *("step", "start_ns", "span_ns", "lane_count", "compute_fraction", "bubble_fraction"),
            *(
                "ideal_bubble_fraction",
                "worst_bubble_fraction",
                "slowest_stage",
                "is_partial",
                "source",
                "worst_lane",
            ),
        )
    ),
)
