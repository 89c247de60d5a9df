"""Pools of GPU memory: their sizes after each operation -> COUNTERS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS

_POOL = ("process", "device", "address")


def build_memory_pools(raw: RawReport) -> pl.DataFrame:
    """Build the counters of each pool of memory: its size, and the part in use; both are 0 after it is destroyed.

    An allocation from a pool has the sizes of the pool, too. Pools of a GPU and process are numbered in order of their first
    operations, where there are several.

    Returns:
        `COUNTERS` in bytes; operations without sizes (on pools of other processes) have no sample.
    """
    rows = raw["memory_pools"]
    if rows.is_empty():
        return COUNTERS.to_frame()
    rows = rows.filter(pl.col("address") != 0)
    if rows.is_empty():
        return COUNTERS.to_frame()
    is_end = pl.col("is_end").fill_null(value=False)
    sizes = [pl.when(is_end).then(0).otherwise(name).alias(name) for name in ("size", "used")]
    rows = rows.with_columns(pl.col("device").fill_null(0), *sizes).sort("time", maintain_order=True)
    pools = rows.select(_POOL).unique(maintain_order=True)
    owner = ["process", "device"]
    pools = pools.with_columns(
        number=pl.int_range(1, pl.len() + 1).over(owner), several=pl.len().over(owner) > 1
    )
    rows = rows.join(pools, on=_POOL, how="left", maintain_order="left")
    name = pl.when("several").then(pl.format("memory pool {}", "number")).otherwise(pl.lit("memory pool"))
    parts = [
        rows.drop_nulls(column)
        .unique([*_POOL, "time"], keep="last", maintain_order=True)
        .select(
            process_key="process",
            device_id="device",
            name=pl.format(f"{{}} {noun}", name),
            unit=pl.lit("bytes"),
            time_ns="time",
            value=pl.col(column).cast(pl.Float64),
        )
        for column, noun in (("size", "size"), ("used", "in use"))
    ]
    return conform(pl.concat(parts), COUNTERS)
