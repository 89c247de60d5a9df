"""Anchors of a report: operations shared with other ranks, the input of alignment.

A collective that needs data of every rank (all-reduce, all-gather, reduce-scatter, all-to-all) ends on all
ranks together; broadcast and reduce do not, and are left out. A send and its receive are one message; only
NCCL's request shows whether a kernel sends or receives.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import conform

_SYNCHRONISING = r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier"
_MESSAGE = r"(?i)send_?recv"


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
    ops = gpu_ops[np.flatnonzero(is_shared)].select(
        *("op_id", "process_key", "device_id", "context_id", "stream_id", "start_ns", "end_ns"),
        kernel=pl.col("name").cast(pl.String),
    )
    ops = ops.join(_combine_requests(requests), on="op_id", how="left")
    call = pl.coalesce("call", "kernel")
    is_message = pl.col("kernel").str.contains(_MESSAGE) | pl.col("call").is_in(["Send", "Recv"])
    kind = (
        pl.when(is_message)
        .then(pl.coalesce("direction", pl.lit("send_receive")))
        .when(pl.col("kernel").str.contains(_SYNCHRONISING) | call.str.contains(_SYNCHRONISING))
        .then(pl.lit("collective"))
    )
    stream = pl.format("stream {} of context {}", "stream_id", "context_id")
    kernels = ops.with_columns(
        kind=kind,
        channel=pl.when(pl.col("communicator").is_null()).then(stream).otherwise(pl.lit("communicator")),
        name=pl.col("kernel"),
    ).filter(pl.col("kind").is_not_null())
    anchors = conform(kernels, ANCHORS)
    if not mpi_calls.is_empty():
        anchors = pl.concat([anchors, _list_mpi_anchors(mpi_calls)])
    return anchors if anchors["start_ns"].is_sorted() else anchors.sort("start_ns", maintain_order=True)


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
