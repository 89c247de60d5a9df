"""Calls of the operating system's runtime -> OS_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import OS_CALLS
from nsys_pp.model.names import resolve


def build_os_calls(raw: RawReport) -> pl.DataFrame:
    """Build the calls, with their names and processes.

    Calls inside other calls (fopen calls open) have rows, too: `nsys stats` counts them.

    Returns:
        `OS_CALLS` in the order of the export.
    """
    if raw["os_calls"].is_empty():
        return OS_CALLS.to_frame()
    calls = raw["os_calls"]
    return calls.select(
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name=resolve(calls["name_id"], raw["strings"]),
    ).pipe(conform, OS_CALLS)
