"""Sends and receives of MPI in one report."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.names import NAME

MPI_MESSAGES = build_schema(
    {  # one row per send or receive between two ranks; by start_ns
        "process_key": pl.Int64,
        "thread_key": pl.Int64,
        "name": NAME,  # "MPI_Isend"
        "is_send": pl.Boolean,
        "communicator": pl.String,  # the same on all of its ranks; null where unknown
        "rank": pl.Int64,  # of the process, in the communicator
        "member_count": pl.Int64,
        "peer": pl.Int64,  # rank in the communicator: receiver of a send, sender of a receive; null: any sender
        "tag": pl.Int64,  # null: any
        "size_bytes": pl.Int64,  # of a receive that does not wait: of its buffer
        "has_size": pl.Boolean,  # size_bytes is that of the message
        "is_whole": pl.Boolean,  # all messages of the process since the start of MPI were recorded before it
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,  # of the call that waits for it; null without one
    },
    name="MPI_MESSAGES",
)
