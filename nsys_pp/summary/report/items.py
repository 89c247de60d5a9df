"""Rows of `ITEM_SUMS` from one row per instance."""

from __future__ import annotations

import polars as pl

from nsys_pp.schema import conform
from nsys_pp.spreads import spread
from nsys_pp.sums import ITEM_SUMS, SPREAD

_COUNTS = ("call_count",)


def sum_instances(instances: pl.DataFrame, *, item: str, measure: str) -> pl.DataFrame:
    """Add up instances of one kind of item by one measure.

    Args:
        instances: `value_ns`, and any columns of `ITEM_SUMS` but item, measure and `SPREAD`.
        item: One of `ITEM`.
        measure: One of `MEASURE`.

    Returns:
        `ITEM_SUMS`: a row per set of instances that agree in all columns but the counts, which are added up.
        Columns that were not given are null. Empty in, empty out.
    """
    keys = [column for column in instances.columns if column not in (*_COUNTS, "value_ns")]
    counts = [column for column in _COUNTS if column in instances.columns]
    timed = instances.drop_nulls("value_ns")
    sums = spread(timed, keys, "value_ns")
    if counts:
        # of the same rows, so the groups stand in the same order
        sums = sums.hstack(timed.group_by(keys, maintain_order=True).agg(pl.col(counts).sum()).select(counts))
    absent = [column for column in ITEM_SUMS if column not in sums.columns]
    return (
        sums.with_columns(
            **{column: pl.lit(None, ITEM_SUMS[column]) for column in absent if column not in SPREAD},
        )
        .with_columns(item=pl.lit(item), measure=pl.lit(measure))
        .pipe(conform, ITEM_SUMS)
    )
