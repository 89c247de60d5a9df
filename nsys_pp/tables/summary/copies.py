"""Memory copies and sets by kind, with their sizes."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, join_by, order_table
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, sum_times
from nsys_pp.units import NS_PER_S

_COLUMNS = (
    *TIME_COLUMNS,
    Column("total_bytes", pl.Int64, "sum of their sizes; null where none is recorded"),
    Column("mean_bytes", pl.Float64, "mean size"),
    Column("median_bytes", pl.Float64, "median size"),
    Column("max_bytes", pl.Int64, "largest size"),
    Column("bytes_per_s", pl.Float64, "all bytes over the sum of durations"),
    Column("name", pl.String, "direction of the copy, or kind of memory that is set"),
)


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    by_name = [*COLUMNS_OF_GROUP[options.by], "name"]
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(["memcpy", "memset"]))
    sizes = add_groups(summary.frames["copy_sizes"], summary, options)
    described = describe_distributions(merge_distributions(sizes, by_name), unit="bytes").drop("count")
    rows = join_by(sum_times(ops, summary, options, keys=["name"]), described, by_name)
    speed = pl.when(pl.col("total_ns") > 0).then(
        pl.col("total_bytes").cast(pl.Float64) * NS_PER_S / pl.col("total_ns")
    )
    return order_table(
        rows.with_columns(bytes_per_s=speed), _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns"
    )


COPY_TABLE = Table(
    name="copies",
    title="Memory copies and sets",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Durations of memory copies and sets on GPUs, summed, and their sizes: concurrent ones all count, so the"
        " bandwidth is that of a single one. Shares are of the sum of their durations."
    ),
    needs=("copies", "sets"),
    totals=(*TIME_TOTALS, "total_bytes"),
    sort="total_ns",
    build=_build,
)
