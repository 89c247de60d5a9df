"""Copies and sets of memory by kind, with their bytes."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import add_groups, finish, join_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, SummaryTable, TableOptions, says_of
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, sum_times
from nsys_pp.units import NS_PER_S

_COLUMNS: Columns = {
    **TIME_COLUMNS,
    "total_bytes": (pl.Int64, "sum of their sizes; empty where none is recorded"),
    "mean_bytes": (pl.Float64, "mean size"),
    "median_bytes": (pl.Float64, "median size"),
    "max_bytes": (pl.Int64, "largest"),
    "bytes_per_s": (pl.Float64, "all bytes by the sum of durations"),
    "name": (pl.String, "what is copied where"),
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    by_name = [*COLUMNS_OF_GROUP[options.by], "name"]
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(["memcpy", "memset"]))
    sizes = add_groups(summary.frames["copy_sizes"], summary, options)
    described = describe_distributions(merge_distributions(sizes, by_name), unit="bytes").drop("count")
    rows = join_by(sum_times(ops, summary, options, keys=["name"]), described, by_name)
    speed = pl.when(pl.col("total_ns") > 0).then(
        pl.col("total_bytes").cast(pl.Float64) * NS_PER_S / pl.col("total_ns")
    )
    return finish(
        rows.with_columns(bytes_per_s=speed), _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns"
    )


COPY_TABLE = SummaryTable(
    title="Copies and sets of memory",
    columns=says_of(_COLUMNS),
    says=(
        "Durations of copies and sets on GPUs added up, and their bytes: those that ran at the same time count"
        " twice, so the bandwidth is that of one at a time. Fractions are of the sum of their durations."
    ),
    needs=("copies", "sets"),
    totals=(*TIME_TOTALS, "total_bytes"),
    sort="total_ns",
    build=_build,
)
