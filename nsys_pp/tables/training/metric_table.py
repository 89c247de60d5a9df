"""GPU metrics by kind of job, phase, family of kernels and cause of bubbles, and by step."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import FAMILIES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import rank_metric
from nsys_pp.frames.requested import METRIC_GROUPS
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import BUBBLE_CAUSES, JOB_KINDS, Training

_METRIC = Column("metric", pl.String, "name of the metric, as nsys has it", is_name=True, priority=9)
_SUMS = (
    Column("mean", pl.Float64, "mean of the metric in that time, over all lanes", decimals=1, priority=9),
    Column("peak", pl.Float64, "largest sample of that time", decimals=1, priority=8),
    Column("time_ns", pl.Int64, "time with samples, summed over lanes", display_unit="ms", priority=5),
    Column("lane_count", pl.Int64, "lanes with samples in that time", heading="Lanes", priority=3),
)
_COLUMNS = (
    _METRIC,
    Column(
        "group",
        pl.String,
        "time that is measured: steps, compute, jobs, families of kernels or bubbles",
        priority=8,
    ),
    Column(
        "item",
        pl.String,
        "kind of the jobs, family of the kernels, or cause of the bubbles; null: all",
        priority=9,
    ),
    *_SUMS,
)
_STEP_COLUMNS = (
    _METRIC,
    Column("step", pl.Int64, "number of the step", priority=9),
    *_SUMS,
)


_RANK = pl.col("metric").map_elements(rank_metric, return_dtype=pl.Int64)  # a row per metric and item


def build_metric_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `METRIC_TABLE`, by metric, group and item.

    Args:
        training: The training.
        sums: `METRIC_SUMS`.
    """
    items = list(dict.fromkeys([*JOB_KINDS, *FAMILIES, *BUBBLE_CAUSES]))
    order = [
        _RANK,
        pl.col("metric"),
        pl.col("group").replace_strict(list(METRIC_GROUPS), range(len(METRIC_GROUPS)), return_dtype=pl.Int64),
        pl.col("item").replace_strict(items, range(len(items)), default=-1, return_dtype=pl.Int64),
    ]
    return (
        sums.group_by("metric", "group", "item")
        .agg(**_sum())
        .sort(order)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def build_step_metric_table(training: Training, sums: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `STEP_METRIC_TABLE`, by metric and step; arguments as in `build_metric_table`."""
    of_steps = sums.filter(pl.col("group") == "steps", pl.col("step").is_not_null())
    by_step = of_steps.group_by("metric", "step").agg(**_sum())
    return by_step.sort(_RANK, "metric", "step").pipe(conform, build_table_schema(_STEP_COLUMNS))


def _sum() -> dict[str, pl.Expr]:
    time = pl.col("time_ns").sum()
    return {
        "mean": pl.col("integral").sum() / time,
        "peak": pl.col("peak").max(),
        "time_ns": time,
        "lane_count": pl.col("lane").n_unique().cast(pl.Int64),
    }


_CAPTION = "means are weighted by time; a value holds until the next sample"
METRIC_TABLE = Table(
    name="metrics",
    title="GPU metrics by job, phase, family of kernels and bubble",
    columns=_COLUMNS,
    caption=(
        f"{_CAPTION}. Jobs are from their first to their last operation, and may contain bubbles; items that overlap"
        " all count. Kernels shorter than the distance of samples have values of their neighbourhood"
    ),
    build=build_metric_table,
    empty="no GPU metrics",  # the caller knows the reason
)
STEP_METRIC_TABLE = Table(
    name="step_metrics",
    title="GPU metrics by step",
    columns=_STEP_COLUMNS,
    caption=_CAPTION,
    build=build_step_metric_table,
    empty="no GPU metrics",
)
