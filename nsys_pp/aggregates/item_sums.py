"""Rows of `ITEM_AGGREGATES` from one row per instance."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import DISTRIBUTION, ITEM_AGGREGATES
from nsys_pp.frames.conform import conform

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
    keys = [column for column in instances.columns if column not in (*_COUNTS, "value_ns")]
    counts = [column for column in _COUNTS if column in instances.columns]
    sums = build_distributions(instances, keys, "value_ns", sums=counts)
    absent = [column for column in ITEM_AGGREGATES if column not in sums.columns]
    return (
        sums.with_columns(
            **{
                column: pl.lit(None, ITEM_AGGREGATES[column])
                for column in absent
                if column not in DISTRIBUTION
            },
        )
        .with_columns(item=pl.lit(item), measure=pl.lit(measure))
        .pipe(conform, ITEM_AGGREGATES)
    )
