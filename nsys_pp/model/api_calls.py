"""CUDA runtime and driver calls -> API_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import API_CALLS
from nsys_pp.model.names import resolve

_VERSION_SUFFIX = r"_v\d+$"  # cudaLaunchKernel_v7000: version of the ABI


def build_api_calls(raw: RawReport) -> pl.DataFrame:
    """Build the calls, with their names and processes.

    Returns:
        `API_CALLS` in the order of the export.
    """
    calls = raw["calls"]
    return calls.select(
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        correlation_id="correlation",
        start_ns="start",
        end_ns="end",
        name=resolve(calls["name_id"], raw["strings"], strip=_VERSION_SUFFIX),
    ).pipe(conform, API_CALLS)
