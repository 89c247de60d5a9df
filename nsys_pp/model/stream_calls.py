"""Streams and events of CUDA calls -> STREAM_CALLS."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, numbers
from nsys_pp.frames.columns import build_frame
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
    stream, event, record = (
        np.where(ids == _NONE, NEVER, ids)
        for ids in (numbers(calls[name]) for name in ("stream", "event", "record"))
    )
    columns = [
        calls["process"].alias("process_key"),
        calls["correlation"].alias("correlation_id"),
        calls["context"].alias("context_id"),
        as_numbers("stream_id", stream),
        as_numbers("event_id", event),
        as_numbers("record_id", np.where(event == NEVER, NEVER, record)),
        calls["is_record"],
    ]
    return conform(build_frame(columns), STREAM_CALLS)
