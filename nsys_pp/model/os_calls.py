"""Calls of the operating system's runtime -> OS_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import OS_CALLS
from nsys_pp.model.names import resolve


def build_os_calls(raw: RawReport) -> pl.DataFrame:
    """Name the calls and the processes that made them.

    Calls that lie inside others (fopen calls open) are rows as well: `nsys stats` counts them too.

    Returns:
        `OS_CALLS` in the order of the export; calls that lack a time or a thread are left out, and so is
        what the export does not say to be a call.
    """
    if raw["os_calls"].is_empty():
        return OS_CALLS.to_frame()
    is_whole = pl.all_horizontal(pl.col("start", "end", "thread").is_not_null())
    calls = raw["os_calls"].filter("is_call", is_whole)
    return calls.select(
        process_key=process_key(pl.col("thread")),
        thread_key="thread",
        start_ns="start",
        end_ns="end",
        name=resolve(calls["name_id"], raw["strings"]),
    ).pipe(conform, OS_CALLS)
