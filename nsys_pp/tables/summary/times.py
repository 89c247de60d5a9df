"""Common columns and rows of tables of durations by name."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column
from nsys_pp.tables.summary.groups import add_groups, add_ranks, order_table, over, share
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, TableOptions

TIME_COLUMNS = (
    Column("count", pl.Int64, "number of calls, operations or ranges"),
    Column("total_ns", pl.Int64, "sum of their durations"),
    Column("fraction", pl.Float64, "share of the sum of the totals"),
    Column("mean_ns", pl.Float64, "mean duration"),
    Column("median_ns", pl.Float64, "median duration"),
    Column("min_ns", pl.Int64, "shortest duration"),
    Column("max_ns", pl.Int64, "longest duration"),
    Column("std_ns", pl.Float64, "sample standard deviation of the durations"),
)
TIME_TOTALS = ("count", "total_ns", "fraction")


def build_times(
    frame: pl.DataFrame,
    summary: Summary,
    options: TableOptions,
    *,
    columns: Sequence[Column],
    keys: Sequence[str],
) -> pl.DataFrame:
    """Build a table of durations, the largest total first.

    Args:
        frame: Aggregates of the summary: `process`, `step`, keys and a distribution.
        summary: The summary.
        options: Options of the table.
        columns: Columns of the table: `TIME_COLUMNS` and the keys.
        keys: Columns that identify a row.
    """
    rows = sum_times(frame, summary, options, keys=keys)
    return order_table(rows, columns, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns")


def sum_times(
    frame: pl.DataFrame, summary: Summary, options: TableOptions, *, keys: Sequence[str]
) -> pl.DataFrame:
    """Sum durations by group and keys: `TIME_COLUMNS`, and `RANK_COLUMNS` if there are several ranks."""
    groups = COLUMNS_OF_GROUP[options.by]
    named = add_groups(frame, summary, options)
    rows = describe_distributions(merge_distributions(named, [*groups, *keys]))
    rows = rows.with_columns(fraction=share("total_ns", over(pl.col("total_ns").sum(), groups)))
    return add_ranks(rows, named, summary, groups=groups, keys=keys, value="total")
