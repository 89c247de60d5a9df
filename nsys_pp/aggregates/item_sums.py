"""Rows of `ITEM_AGGREGATES` from one row per instance."""

from __future__ import annotations

from functools import cache

import polars as pl

from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import ITEM_AGGREGATES
from nsys_pp.frames.conform import conform_part

_COUNTS = ("call_count",)


def sum_instances(instances: pl.DataFrame, *, item: str, measure: str) -> pl.DataFrame:
    """Add up instances of one kind of item by one measure.

    Args:
        instances: `value_ns`, and any columns of `ITEM_AGGREGATES` except item, measure and `DISTRIBUTION`.
        item: One of `ITEM`.
        measure: One of `MEASURE`.

    Returns:
        `ITEM_AGGREGATES`: one row per combination of values, with counts added up. Missing columns are null. Empty in, empty out.
    """
    counts = [column for column in _COUNTS if column in instances.columns]
    keys = [column for column in instances.columns if column not in (*counts, "value_ns")]
    sums = build_distributions(instances, keys, "value_ns", counts=counts)
    of_all = [_repeat("item", item, len(sums)), _repeat("measure", measure, len(sums))]
    return conform_part(sums.hstack(of_all), ITEM_AGGREGATES)


def _repeat(column: str, text: str, count: int) -> pl.Series:
    """Build a column of one category."""
    return _build_category(column, text).new_from_index(0, count)


@cache
def _build_category(column: str, text: str) -> pl.Series:
    return pl.Series(column, [text], dtype=ITEM_AGGREGATES[column])
