"""CUDA runtime and driver calls -> API_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.scratch_frames import map_column
from nsys_pp.frames.columns import build_frame
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
    columns = {
        "process_key": map_column(calls["thread"], process_key),
        "thread_key": calls["thread"],
        "correlation_id": calls["correlation"],
        "start_ns": calls["start"],
        "end_ns": calls["end"],
        "name": resolve(calls["name_id"], raw["strings"], strip=_VERSION_SUFFIX),
    }
    return conform(build_frame(column.alias(name) for name, column in columns.items()), API_CALLS)
