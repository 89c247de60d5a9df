"""Streams and events of CUDA calls -> STREAM_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import STREAM_CALLS

_NONE = (1 << 32) - 1  # the id of no stream and of no event


def build_stream_calls(raw: RawReport) -> pl.DataFrame:
    """Build the streams and events of calls.

    Returns:
        `STREAM_CALLS`.
    """
    tables = [(raw[table], table == "cuda_events") for table in ("synchronizations", "cuda_events")]
    parts = [
        table.hstack([pl.Series("is_record", [is_record]).new_from_index(0, table.height)])
        for table, is_record in tables
        if not table.is_empty()
    ]
    if not parts:
        return STREAM_CALLS.to_frame()
    calls = pl.concat(parts)
    stream, event = (pl.when(pl.col(name) != _NONE).then(name) for name in ("stream", "event"))
    return calls.select(
        process_key="process",
        correlation_id="correlation",
        context_id="context",
        stream_id=stream,
        event_id=event,
        record_id=pl.when(event.is_not_null() & (pl.col("record") != _NONE)).then("record"),
        is_record="is_record",
    ).pipe(conform, STREAM_CALLS)
