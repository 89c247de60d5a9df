"""Frames about clocks."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.report import NAME

ANCHORS = build_schema(
    {  # what ties a report's clock to those of others: operations that other ranks take part in; by start_ns
        "process_key": pl.Int64,
        "device_id": pl.Int32,  # null for MPI
        "channel": pl.String,  # operations of one channel keep their order on every rank: "stream 17 of context 1"
        "kind": pl.Enum(["collective", "send", "receive", "send_receive", "mpi"]),
        "name": NAME,  # "AllReduce", "MPI_Barrier": what must agree for two to be one
        "communicator": pl.UInt64,  # the same on all ranks; null where unknown
        "rank": pl.Int64,  # within the communicator; null where unknown
        "peer": pl.Int64,  # rank within the communicator; null where unknown
        "size_bytes": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    }
)
