"""Intervals and instants of threads, processes and the system that a trace has on request (`--show`)."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.names import NAME

ACTIVITIES = build_schema(
    {  # one row per interval or instant, by row, thread_key and start_ns
        "row": pl.Categorical(),  # its row in the trace: "OS calls", "states", "MPI", the name of an unknown table
        "process_key": pl.Int64,  # null: of the system
        "thread_key": pl.Int64,  # null: of the process
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,  # null: an instant, or an interval without a recorded end
        "name": NAME,
        "size_bytes": pl.Int64,
        "peer": pl.Int64,  # rank, or worker of UCX
        "tag": pl.Int64,
        "stream_id": pl.Int64,
        "cpu": pl.Int64,
        "address": pl.Int64,  # of memory
        "count": pl.Int64,  # events that it stands for: page faults
        "detail": NAME,  # kind of memory; text of an event of an unknown table
        "event_id": pl.Int64,  # CUDA event that a call records or waits for
        "stack": NAME,  # functions of a sample, the innermost first
        "link": pl.Int64,  # number of the record of an event: of its call, and of calls that wait for it; null without arrow
        "is_origin": pl.Boolean,  # the activity is that call; null without a link
    },
    name="ACTIVITIES",
)
