"""Times of operators and phases on the CPU and on GPUs, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.table import Column

HOST, GPU = "host", "gpu"


def item_columns(host_fraction: str, gpu_fraction: str) -> tuple[Column, ...]:
    """Return the columns of times on the CPU and on GPUs, with the meanings of their shares."""
    sides = {HOST: ("on the CPU", host_fraction), GPU: ("of their operations on GPUs", gpu_fraction)}
    columns = (
        column
        for side, (location, fraction) in sides.items()
        for column in (
            Column(f"{side}_total_ns", pl.Int64, f"sum of durations {location}"),
            Column(f"{side}_fraction", pl.Float64, fraction),
            Column(f"{side}_mean_ns", pl.Float64, f"mean {location}, per item and GPU"),
            Column(f"{side}_max_ns", pl.Int64, f"longest {location}"),
            Column(f"{side}_min_ns", pl.Int64, f"shortest {location}"),
        )
    )
    return (Column("count", pl.Int64, "number of items"), *columns)


def describe_items(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Describe the distributions of times on the CPU and on GPUs.

    Args:
        frame: Rows of `ITEM_AGGREGATES`, with the keys.
        keys: Columns that identify an item.

    Returns:
        The keys, `host_total_ns`, `host_mean_ns` and so on, likewise for `gpu_`, and `count`: the number of items
        on the CPU, else of items with operations on GPUs.
    """
    sides = [_describe(frame, keys, side) for side in (HOST, GPU)]
    both = _join(sides, keys)
    return both.with_columns(count=pl.coalesce("host_count", "gpu_count"))


def _describe(frame: pl.DataFrame, keys: Sequence[str], side: str) -> pl.DataFrame:
    distributions = merge_distributions(frame.filter(pl.col("measure") == side), keys)
    return describe_distributions(distributions).select(*keys, pl.exclude(keys).name.prefix(f"{side}_"))


def _join(sides: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    left, right = sides
    return left.join(
        right, on=list(keys), how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
    )
