"""Allocations and releases of memory by CUDA -> MEMORY_EVENTS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import MEMORY_EVENTS


def build_memory_events(raw: RawReport) -> pl.DataFrame:
    """Build the events, in order of time.

    Returns:
        `MEMORY_EVENTS`.
    """
    if raw["cuda_memory"].is_empty():
        return MEMORY_EVENTS.to_frame()
    return (
        raw["cuda_memory"]
        .sort("time", maintain_order=True)
        .select(
            process_key="process",
            device_id=pl.col("device").fill_null(0),
            correlation_id="correlation",
            time_ns="time",
            kind="kind",
            is_release=pl.col("action") == "release",
            address=pl.col("address").reinterpret(signed=False),
            size_bytes="bytes",
        )
        .pipe(conform, MEMORY_EVENTS)
    )
