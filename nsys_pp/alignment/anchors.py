"""Anchors of a report: operations shared with other ranks, the input of alignment.

A collective that needs data of every rank (all-reduce, all-gather, reduce-scatter, all-to-all) ends on all
ranks together; broadcast and reduce do not, and are left out. A send and its receive are one message; only
NCCL's request shows whether a kernel sends or receives.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, gather, gather_rows, is_among, is_matched, numbers
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import conform

_SYNCHRONISING = r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier"
_MESSAGE = r"(?i)send_?recv"
_OF_OPERATION = ("name", "process_key", "device_id", "context_id", "stream_id", "start_ns", "end_ns")
_OF_REQUEST = ("direction", "communicator", "rank", "peer", "size_bytes")


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
    requested = _combine_requests(requests)
    request = _find_request(numbers(requested["op_id"]), numbers(gpu_ops["op_id"])[row])
    name, call = gpu_ops["name"][row], gather(requested["call"], request)
    is_message = is_matched(name, _MESSAGE) | _is_true(call.is_in(["Send", "Recv"]))
    is_collective = is_matched(name, _SYNCHRONISING) | _is_true(call.str.contains(_SYNCHRONISING))
    kept = np.flatnonzero(is_message | is_collective)
    ops = gather_rows(gpu_ops, _OF_OPERATION, row[kept])
    kernels = ops.hstack(gather_rows(requested, _OF_REQUEST, request[kept])).with_columns(
        kind=pl.when(pl.Series(is_message[kept]))
        .then(pl.coalesce("direction", pl.lit("send_receive")))
        .otherwise(pl.lit("collective")),
        channel=pl.when(pl.col("communicator").is_null())
        .then(pl.format("stream {} of context {}", "stream_id", "context_id"))
        .otherwise(pl.lit("communicator")),
    )
    anchors = conform(kernels, ANCHORS)
    if not mpi_calls.is_empty():
        anchors = pl.concat([anchors, _list_mpi_anchors(mpi_calls)])
    return anchors if anchors["start_ns"].is_sorted() else anchors.sort("start_ns", maintain_order=True)


def _find_request(of_request: Int64s, op: Int64s) -> Int64s:
    """Find the row of the request of each operation; -1 without one. The operations of requests ascend."""
    at = np.searchsorted(of_request, op)
    return np.where(np.append(of_request, NEVER)[at] == op, at, -1)


def _is_true(mask: pl.Series) -> Bools:
    """Return the mask of the rows that are true, and not null."""
    true: Bools = mask.to_numpy() == True  # noqa: E712  # objects, where one is null
    return true


def _list_mpi_anchors(mpi_calls: pl.DataFrame) -> pl.DataFrame:
    """List the blocking and synchronising MPI collectives."""
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


def _combine_requests(requests: pl.DataFrame) -> pl.DataFrame:
    """Combine the requests of each operation.

    Returns:
        One row per operation: op_id, call ("AllReduce"), direction ("send", "receive", "send_receive"),
        communicator, rank, peer, size_bytes; null where its requests differ.
    """
    columns = ("call", "communicator", "rank", "peer", "size_bytes")
    is_send, is_receive = pl.col("call") == "Send", pl.col("call") == "Recv"
    op = requests["op_id"].to_numpy()
    if (op[1:] > op[:-1]).all():  # one request each, as usual
        direction = pl.when(is_send).then(pl.lit("send")).when(is_receive).then(pl.lit("receive"))
        return requests.select("op_id", *columns, direction=direction)
    return requests.group_by("op_id", maintain_order=True).agg(
        pl.when(is_send.any() & is_receive.any())
        .then(pl.lit("send_receive"))
        .when(is_send.any())
        .then(pl.lit("send"))
        .when(is_receive.any())
        .then(pl.lit("receive"))
        .alias("direction"),
        *(pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name) for name in columns),
    )
