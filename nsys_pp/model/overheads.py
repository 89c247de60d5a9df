"""Time in which nsys held threads -> OVERHEADS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.overheads import OVERHEADS
from nsys_pp.frames.raw import RawReport
from nsys_pp.model.names import resolve


def build_overheads(raw: RawReport) -> pl.DataFrame:
    """Build the intervals in which nsys held a thread (`OVERHEADS`); empty unless they were read."""
    rows = raw["overheads"]
    if rows.is_empty():
        return OVERHEADS.to_frame()
    name = resolve(rows["name_id"], raw["strings"], dtype=pl.String())
    return (
        rows.select(thread_key="thread", start_ns="start", end_ns="end")
        .hstack([name.alias("name")])
        .pipe(conform, OVERHEADS)
    )
