"""Gaps of a serving run in which its GPU may have had no request: waits for requests are no fault of the host.

nsys records no queues. Names of ranges have the kind of the batch after a gap: the requests of a decode, and the running ones of a mixed batch, were in flight
before it, so the host let them wait. Before a prefill, or a batch of unknown kind, perhaps nothing was in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.training import HOST_ACTIVITY_COLUMNS
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import format_share, format_time

_IN_FLIGHT = ("decode", "mixed")
_LEAST = 0.1  # share of the time of iterations
_UNKNOWN_WORK = ("waiting_ns", "other_ns")  # activities of a host that may only wait for requests


def mark_in_flight() -> pl.Expr:
    """Return the mask of batches whose requests were in flight before them."""
    return pl.col("kind").cast(pl.String).is_in(_IN_FLIGHT).fill_null(value=False)


def list_gaps(evidence: Evidence) -> pl.DataFrame:
    """List the gaps before batches.

    Returns:
        lane, start_ns, end_ns, idle_ns (the part that may be a wait for requests), and `HOST_ACTIVITY_COLUMNS` without this part.
    """
    batches = evidence.training.batches.drop_nulls(["start_ns", "end_ns"]).sort("lane", "start_ns")
    in_flight = mark_in_flight().shift(-1).over("lane").fill_null(value=False)
    following = batches.with_columns(in_flight=in_flight).drop_nulls("gap_ns")
    return following.select(
        "lane",
        start_ns="end_ns",
        end_ns=pl.col("end_ns") + pl.col("gap_ns"),
        idle_ns=pl.when("in_flight").then(0).otherwise(pl.sum_horizontal(*_UNKNOWN_WORK)),
        **{
            name: pl.when("in_flight").then(name).otherwise(0) if name in _UNKNOWN_WORK else pl.col(name)
            for name in HOST_ACTIVITY_COLUMNS
        },
    )


def may_wait_for_requests(evidence: Evidence, lane: int, start_ns: int, end_ns: int) -> bool:
    """Return whether the GPU of a lane may have had no request in most of an interval."""
    gaps = list_gaps(evidence).filter(
        pl.col("lane") == lane, pl.col("start_ns") < end_ns, pl.col("end_ns") > start_ns
    )
    inside = pl.min_horizontal("end_ns", pl.lit(end_ns)) - pl.max_horizontal("start_ns", pl.lit(start_ns))
    # of a gap that reaches out of the interval, the same share
    idle = gaps.select((pl.col("idle_ns") * inside / (pl.col("end_ns") - pl.col("start_ns"))).sum()).item()
    return to_float(idle) >= 0.5 * (end_ns - start_ns)


def describe_waits_for_requests(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the time in which servers may have waited for requests; other runs have none."""
    batches = evidence.training.batches.drop_nulls(["start_ns", "end_ns"])
    if batches.is_empty():
        return []
    gaps = list_gaps(evidence)
    whole = to_float((batches["end_ns"] - batches["start_ns"]).sum()) + to_float(batches["gap_ns"].sum())
    idle = to_float(gaps["idle_ns"].sum())
    if not whole or idle < _LEAST * whole:
        return []
    longest = to_float(gaps["idle_ns"].max())
    return [
        Finding(
            kind="requests",
            text=f"GPUs had no batch {format_share(idle / whole)} of the time before new requests, up to {format_time(longest)}, while hosts"
            " waited or did nothing that is recorded: there may have been no request, as nsys does not record how many are queued",
            confidence="guess",
            subject="run",
            value_ns=idle / gaps.height,
            sample_count=gaps.height,
        )
    ]
