"""Ranges, operators and phases: what they took on the CPU and on GPUs, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.tables.summary.table import Columns

HOST, GPU = "host", "gpu"


def item_columns(host_whole: str, gpu_whole: str) -> Columns:
    """Return the columns of the CPU and of GPUs, with what their fractions are of."""
    sides = {HOST: ("on the CPU", host_whole), GPU: ("of their operations on GPUs", gpu_whole)}
    columns: dict[str, tuple[pl.DataType | type[pl.DataType], str]] = {}
    for side, (where, whole) in sides.items():
        columns |= {
            f"{side}_total_ns": (pl.Int64, f"sum of durations {where}"),
            f"{side}_fraction": (pl.Float64, whole),
            f"{side}_mean_ns": (pl.Float64, f"mean {where}, of one and on one GPU"),
            f"{side}_max_ns": (pl.Int64, f"most {where}"),
            f"{side}_min_ns": (pl.Int64, f"least {where}"),
        }
    return {"count": (pl.Int64, "how many there are"), **columns}


def describe_items(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Say how times on the CPU and on GPUs are spread.

    Args:
        frame: Rows of `ITEM_AGGREGATES`, with the keys.
        keys: Columns that tell items apart.

    Returns:
        The keys, `host_total_ns`, `host_mean_ns` and so on, the same of `gpu_`, and `count`: how many there are
        on the CPU, or else those that ran something on GPUs.
    """
    sides = [_describe(frame, keys, side) for side in (HOST, GPU)]
    both = _join(sides, keys)
    return both.with_columns(count=pl.coalesce("host_count", "gpu_count"))


def _describe(frame: pl.DataFrame, keys: Sequence[str], side: str) -> pl.DataFrame:
    spreads = merge_distributions(frame.filter(pl.col("measure") == side), keys)
    return describe_distributions(spreads).select(*keys, pl.exclude(keys).name.prefix(f"{side}_"))


def _join(sides: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    left, right = sides
    return left.join(
        right, on=list(keys), how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
    )
