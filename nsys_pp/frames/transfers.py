"""Frame of the pairs of sends and receives of a run."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import DIRECTION

DOUBTFUL = pl.Enum(
    [
        "lane",  # the receiver (or the sender) may be another lane: only the order of ranks speaks against it
        "order",  # the message may be another one between these lanes: times fit nearly as well
        "clocks",  # the pair is right only if clocks are wrong by more than their bounds
    ]
)
"""Reasons why a pair of a send and a receive may be wrong."""
DOUBTFUL_TEXTS = {
    "lane": "other lanes fit nearly as well, and only the order of ranks distinguishes them",
    "order": "messages one or two earlier or later fit nearly as well",
    "clocks": "messages arrive before they are sent, so clocks are wrong by more than their bounds",
}
"""Reasons, for people."""

TRANSFERS = build_schema(
    {  # one row per pair of a send and its receive; by send_start_ns
        "sender": pl.UInt32,  # lane
        "receiver": pl.UInt32,
        "step": pl.Int64,  # of the sender; null outside all steps
        "direction": DIRECTION,  # null where unknown
        "micro_batch": pl.Int64,
        "size_bytes": pl.Int64,
        "send_start_ns": pl.Int64,  # the sender's kernel
        "send_end_ns": pl.Int64,
        "receive_start_ns": pl.Int64,  # the receiver's kernel
        "receive_end_ns": pl.Int64,
        # Null where the clocks of both lanes cannot be compared:
        "send_wait_ns": pl.Int64,  # time of the sender's kernel before the receiver's start
        "receive_wait_ns": pl.Int64,  # time of the receiver's kernel before the sender's start
        "transfer_ns": pl.Int64,  # the rest of the receiver's kernel
        "is_buffered": pl.Boolean,  # the send ended before the receive began
        "bound_ns": pl.Int64,  # error bound of waits and transfer: sum of both lanes' bounds; null: unknown
        "source": pl.String,  # of the peer: "peer and order", "only peer and order", "stages and order", "ends"
        "doubtful": DOUBTFUL,  # null: certain
    },
    name="TRANSFERS",
)
