"""Messages and collectives of MPI -> MPI_CALLS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import MPI_CALLS
from nsys_pp.model.names import resolve

_KEYS = ["process_key", "communicator"]


def build_mpi_calls(raw: RawReport) -> pl.DataFrame:
    """Build the messages and collectives, with the sizes of their communicators.

    The size of a collective is the contribution of the rank, else the received data. The peer is null for
    MPI_ANY_SOURCE and MPI_PROC_NULL.

    Returns:
        `MPI_CALLS` by start_ns.
    """
    if raw["mpi_messages"].is_empty() and raw["mpi_collectives"].is_empty():
        return MPI_CALLS.to_frame()
    messages = raw["mpi_messages"].with_columns(is_collective=pl.lit(value=False))
    collectives = raw["mpi_collectives"].with_columns(
        is_collective=pl.lit(value=True), bytes=pl.coalesce("bytes", "received_bytes")
    )
    calls = pl.concat([messages, collectives], how="diagonal").sort("start")
    calls = calls.with_columns(process_key=process_key(pl.col("thread")))
    return (
        calls.with_columns(member_count=_count_members(calls, raw))
        .select(
            "process_key",
            thread_key="thread",
            name=resolve(calls["name_id"], raw["strings"]),
            is_collective="is_collective",
            communicator="communicator",
            member_count="member_count",
            peer=pl.when(pl.col("peer") >= 0).then("peer"),
            tag="tag",
            size_bytes="bytes",
            start_ns="start",
            end_ns="end",
        )
        .pipe(conform, MPI_CALLS)
    )


def _count_members(calls: pl.DataFrame, raw: RawReport) -> pl.Series:
    """Find the size of the communicator of each call: at its last creation before the call, else at its first."""
    processes = raw["ranks"].select("rank", process_key=process_key(pl.col("thread"))).drop_nulls().unique()
    created = raw["mpi_communicators"].drop_nulls(["communicator", "size"])
    created = (
        created.join(processes, on="rank", how="inner").with_columns(pl.col("time").fill_null(0)).sort("time")
    )
    if created.is_empty() or calls.is_empty():
        return pl.Series("member_count", [None], dtype=pl.Int64).new_from_index(0, len(calls))
    first = created.unique(_KEYS, keep="first", maintain_order=True).select(*_KEYS, first_size="size")
    return (
        calls.select(*_KEYS, "start")
        .join_asof(
            created.select(*_KEYS, "time", "size"),
            left_on="start",
            right_on="time",
            by=_KEYS,
            check_sortedness=False,
        )
        .join(first, on=_KEYS, how="left", maintain_order="left")
        .select(member_count=pl.coalesce("size", "first_size"))
        .to_series()
    )
