"""Counters of a report, from all raw frames with samples.

To draw a table of nsys as counters, map it to a raw frame in `nsys_pp.read.tables` and `nsys_pp.frames.raw`, write a
function that builds `COUNTERS` from it, and add the function to `BUILDERS`. Traces draw all counters.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import COUNTERS
from nsys_pp.model.memory_pools import build_memory_pools
from nsys_pp.model.processor_counters import build_processor_counters

BUILDERS: tuple[Callable[[RawReport], pl.DataFrame], ...] = (build_processor_counters, build_memory_pools)
"""Functions that build the counters of one raw frame each."""


def build_counters(raw: RawReport) -> pl.DataFrame:
    """Build the counters of a report.

    Returns:
        `COUNTERS`, by name and time; empty if no table with counters was recorded.
    """
    frames = [build(raw).pipe(conform, COUNTERS) for build in BUILDERS]
    if all(frame.is_empty() for frame in frames):
        return COUNTERS.to_frame()
    return pl.concat(frames).sort("name", "unit", "process_key", "device_id", "time_ns", maintain_order=True)
