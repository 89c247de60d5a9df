"""NVTX ranges by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, order_table, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, sum_times

_COLUMNS = (
    *TIME_COLUMNS,
    Column(
        "gpu_total_ns", pl.Int64, "sum of the durations of their operations on GPUs; null without operations"
    ),
    Column(
        "gpu_span_ns", pl.Int64, "sum of the times from the first start to the last end of their operations"
    ),
    Column("style", pl.String, "push/pop or start/end"),
    Column("name", pl.String, "domain and text", is_name=True),
)


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    keys = ["style", "name"]
    domain, text = pl.col("domain").cast(pl.String), pl.col("name").cast(pl.String).fill_null(NO_NAME)
    ranges = (
        summary.frames["item_aggregates"]
        .filter(pl.col("item") == "range")
        .with_columns(
            pl.col("style").cast(pl.String),
            name=pl.when(domain.is_null()).then(text).otherwise(domain + ":" + text),
        )
    )
    named = add_groups(ranges, summary, options)
    rows = sum_times(ranges.filter(pl.col("measure") == "host"), summary, options, keys=keys)
    for measure, column in (("gpu", "gpu_total_ns"), ("span", "gpu_span_ns")):
        sums = named.filter(pl.col("measure") == measure)
        sums = sum_by(sums, [*groups, *keys], **{column: pl.col("total").sum()})
        rows = rows.join(sums, on=[*groups, *keys], how="full", coalesce=True, nulls_equal=True)
    return order_table(rows, _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns")


RANGE_TABLE = Table(
    name="ranges",
    title="NVTX ranges",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Durations of ranges on the CPU, summed by name; a range inside another counts in both. On GPUs: durations of the"
        " operations that were launched inside, summed, and the time from their first start to their last end."
    ),
    needs=("ranges",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build,
)
