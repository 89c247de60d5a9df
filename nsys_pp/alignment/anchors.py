"""Anchors of a report: operations shared with other ranks, the input of alignment.

A collective that needs data of every rank (all-reduce, all-gather, reduce-scatter, all-to-all) ends on all
ranks together; broadcast and reduce do not, and are left out. A send and its receive are one message; only
NCCL's request shows whether a kernel sends or receives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    find_distinct,
    gather,
    gather_rows,
    has_value,
    is_among,
    numbers,
    pack,
    pick,
    whole_numbers,
)
from nsys_pp.arrays.names import list_names
from nsys_pp.arrays.search import find_rows
from nsys_pp.arrays.types import Bools
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import build_frame, conform
from nsys_pp.frames.report import POINT_TO_POINT

_SYNCHRONISING = r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier"
_OF_OPERATION = ("name", "process_key", "device_id", "context_id", "stream_id", "start_ns", "end_ns")
_KINDS = pl.Series(ANCHORS["kind"].categories, dtype=ANCHORS["kind"])  # type: ignore[attr-defined]
_COLLECTIVE, _SEND, _RECEIVE, _SEND_RECEIVE = range(4)  # codes of `_KINDS`


def find_anchors(*, gpu_ops: pl.DataFrame, requests: pl.DataFrame, mpi_calls: pl.DataFrame) -> pl.DataFrame:
    """List the operations of a report that are shared with other ranks.

    Args:
        gpu_ops: `GPU_OPS`.
        requests: `REQUESTS`: the NCCL calls of each kernel.
        mpi_calls: `MPI_CALLS`.

    Returns:
        `ANCHORS` by start; empty without shared operations.
    """
    is_shared = gpu_ops["is_communication"].to_numpy() & ~is_among(gpu_ops["kind"], ("memcpy", "memset"))
    row = np.flatnonzero(is_shared)
    requested, is_of_message = _combine_requests(requests)
    request = find_rows(numbers(requested["op_id"]), numbers(gpu_ops["op_id"])[row])
    names = list_names(gather(gpu_ops["name"], row))
    is_message = names.match(POINT_TO_POINT) | pick(is_of_message, request, absent=False)
    is_anchor = is_message | names.match(_SYNCHRONISING)
    others = np.flatnonzero(~is_anchor)
    if (request[others] >= 0).any():
        calls = gather(requested["call"], request[others])
        is_anchor[others] = (calls.str.contains(_SYNCHRONISING)).to_numpy().astype(np.bool_)
    start = numbers(gpu_ops["start_ns"])[row]
    kept = np.flatnonzero(is_anchor)
    kept = kept[np.argsort(start[kept], kind="stable")]
    columns = [
        *gather_rows(gpu_ops, _OF_OPERATION, row[kept]),
        *gather_rows(requested, ("direction", "communicator", "rank", "peer", "size_bytes"), request[kept]),
    ]
    anchors = build_frame(columns).hstack(_name_kinds(is_message[kept], columns)).pipe(conform, ANCHORS)
    if mpi_calls.is_empty():
        return anchors
    return pl.concat([anchors, _list_mpi_anchors(mpi_calls)]).sort("start_ns", maintain_order=True)


def _name_kinds(is_message: Bools, columns: Sequence[pl.Series]) -> list[pl.Series]:
    # the kind and the channel, by other columns of `ANCHORS`
    kind = np.full(len(is_message), _COLLECTIVE)
    by_name = {column.name: column for column in columns}
    direction = whole_numbers(by_name["direction"])[is_message]
    kind[is_message] = np.where(direction < 0, _SEND_RECEIVE, direction)
    channel = pl.Series("channel", ["communicator"]).new_from_index(0, len(kind))
    if by_name["communicator"].null_count():
        keys = [numbers(by_name[name]) for name in ("stream_id", "context_id")]
        first, number = find_distinct(pack(*keys))
        streams = zip(*(key[first].tolist() for key in keys), strict=True)
        names = [None if NEVER in stream else "stream {} of context {}".format(*stream) for stream in streams]
        is_known = has_value(by_name["communicator"])
        of_all = pl.Series("channel", ["communicator", *names], dtype=pl.String)
        channel = gather(of_all, np.where(is_known, 0, 1 + number))
    return [gather(_KINDS, kind).alias("kind"), channel]


def _list_mpi_anchors(mpi_calls: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    return (
        mpi_calls.filter("is_collective", name.str.contains(_SYNCHRONISING), ~name.str.contains("MPI_I[a-z]"))
        .with_columns(
            device_id=pl.lit(None, pl.Int32),
            channel=pl.format("MPI {}", pl.col("communicator").fill_null(0)),
            kind=pl.lit("mpi"),
            name=pl.format("{} of {}", name, pl.col("member_count").cast(pl.String).fill_null("?")),
            communicator=pl.lit(None, pl.UInt64),
            rank=pl.lit(None, pl.Int64),
            peer=pl.lit(None, pl.Int64),
        )
        .pipe(conform, ANCHORS)
    )


def _combine_requests(requests: pl.DataFrame) -> tuple[pl.DataFrame, Bools]:
    """Combine the requests of each operation.

    Returns:
        One row per operation: op_id, call ("AllReduce"), direction (`_KINDS`), communicator, rank, peer,
            size_bytes; null
        where its requests differ. Mask of the operations that only send, or only receive.
    """
    columns = ("call", "communicator", "rank", "peer", "size_bytes")
    sends, receives = (pl.col("call") == "Send").any(), (pl.col("call") == "Recv").any()
    combined = requests.group_by("op_id", maintain_order=True).agg(
        pl.when(sends & receives)
        .then(pl.lit("send_receive"))
        .when(sends)
        .then(pl.lit("send"))
        .when(receives)
        .then(pl.lit("receive"))
        .cast(_KINDS.dtype)
        .alias("direction"),
        *(pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name) for name in columns),
    )
    return combined, combined["call"].is_in(["Send", "Recv"]).to_numpy().astype(np.bool_)
