"""Payloads of NCCL's own NVTX ranges -> NCCL_CALLS.

NCCL adds structures to its ranges (since 2.16; exported from schema 3.24 on). Fields differ by function and by
version, and are found by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.conform import conform, extend_schema
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import NCCL_CALLS
from nsys_pp.model.payloads import Structures

_COMMUNICATOR = "NCCL communicator ID"  # structures without it come from other programs
_FIELDS = {  # NCCL's name -> ours
    _COMMUNICATOR: "communicator",
    "Rank": "rank",
    "No. of ranks": "rank_count",
    "CUDA device": "device_id",
    "Peer rank": "peer",
    "Message size [bytes]": "size_bytes",
}
_EVENTS = extend_schema(NCCL_CALLS, {"process_key": pl.Int64, "device_id": pl.Int64}, name="NCCL_EVENTS")


def read_nccl_events(raw: RawReport, structures: Sequence[Structures]) -> pl.DataFrame:
    """Read the payloads of NCCL's ranges and marks.

    Args:
        raw: A report that was read with group "communication".
        structures: From `read_structures`.

    Returns:
        `NCCL_CALLS` with `process_key` and `device_id` (CUDA ordinal of the rank; only for the
        creation of a communicator), by range_id.
    """
    payloads = raw["payloads"]
    parts = [
        structure.fields.select(
            pl.lit(payloads["row"].gather(structure.at)).alias("range_id"),
            pl.lit(payloads["thread"].gather(structure.at)).alias("thread"),
            *(
                pl.col(theirs).cast(_EVENTS[ours], strict=False).alias(ours)
                if theirs in structure.fields.columns
                else pl.lit(None, dtype=_EVENTS[ours]).alias(ours)
                for theirs, ours in _FIELDS.items()
            ),
        )
        for structure in structures
        if _COMMUNICATOR in structure.fields.columns
    ]
    if not parts or "communication" not in raw.groups:
        return _EVENTS.to_frame()
    events = pl.concat(parts).with_columns(process_key=process_key(pl.col("thread"))).sort("range_id")
    return conform(events, _EVENTS)


def build_nccl_calls(events: pl.DataFrame, ranges: pl.DataFrame | None) -> pl.DataFrame:
    """Keep the payloads of ranges.

    Args:
        events: From `read_nccl_events`.
        ranges: `RANGES`; None if they were not read: payloads of marks are kept, too.

    Returns:
        `NCCL_CALLS` by range_id.
    """
    if ranges is not None and not events.is_empty():
        events = events.join(ranges, on="range_id", how="semi", maintain_order="left")
    return conform(events, NCCL_CALLS)
