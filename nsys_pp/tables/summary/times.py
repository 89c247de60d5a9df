"""Tables of durations by name: the columns that they have in common, and how these are made."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import add_groups, add_ranks, finish, over, share
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, Columns, TableOptions

TIME_COLUMNS: Columns = {
    "count": (pl.Int64, "how many there are"),
    "total_ns": (pl.Int64, "sum of their durations"),
    "fraction": (pl.Float64, "of the sum of the column total"),
    "mean_ns": (pl.Float64, "mean duration"),
    "median_ns": (pl.Float64, "median duration"),
    "min_ns": (pl.Int64, "shortest"),
    "max_ns": (pl.Int64, "longest"),
    "std_ns": (pl.Float64, "standard deviation of a sample"),
}
TIME_TOTALS = ("count", "total_ns", "fraction")


def build_times(
    frame: pl.DataFrame, summary: Summary, options: TableOptions, *, columns: Columns, keys: Sequence[str]
) -> pl.DataFrame:
    """Make a table of durations, the largest total first.

    Args:
        frame: Sums of the summary: `place`, `step`, keys and a spread.
        summary: Whose they are.
        options: How to make it.
        columns: Its columns: `TIME_COLUMNS` and the keys.
        keys: Columns that tell its rows apart.
    """
    rows = sum_times(frame, summary, options, keys=keys)
    return finish(rows, columns, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns")


def sum_times(
    frame: pl.DataFrame, summary: Summary, options: TableOptions, *, keys: Sequence[str]
) -> pl.DataFrame:
    """Add up durations by group and keys: `TIME_COLUMNS`, and `RANK_COLUMNS` where there are several ranks."""
    groups = COLUMNS_OF_GROUP[options.by]
    named = add_groups(frame, summary, options)
    rows = describe_distributions(merge_distributions(named, [*groups, *keys]))
    rows = rows.with_columns(fraction=share("total_ns", over(pl.col("total_ns").sum(), groups)))
    return add_ranks(rows, named, summary, groups=groups, keys=keys, value="total")
