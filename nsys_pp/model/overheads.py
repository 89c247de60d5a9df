"""Time in which tracing or CUDA held threads -> OVERHEADS."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.overheads import OVERHEADS, mark_of_profiler
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.names import resolve


def build_overheads(raw: RawReport) -> pl.DataFrame:
    """Build the intervals in which tracing or CUDA held a thread (`OVERHEADS`); empty unless they were read."""
    if raw["overheads"].is_empty() and raw["cuda_overheads"].is_empty():
        return OVERHEADS.to_frame()
    rows = pl.concat([raw["overheads"], raw["cuda_overheads"]])
    is_of_nsys = pl.Series(np.arange(len(rows)) < len(raw["overheads"]))
    name = resolve(rows["name_id"], raw["strings"], dtype=pl.String())
    return (
        rows.select(thread_key="thread", start_ns="start", end_ns="end")
        .hstack([name.alias("name")])
        .with_columns(is_of_profiler=mark_of_profiler(pl.col("name")))
        # of CUDA's own table, only named intervals are known to be of the profiler
        .with_columns(pl.col("is_of_profiler") & (pl.col("name").is_not_null() | is_of_nsys))
        .pipe(conform, OVERHEADS)
    )
