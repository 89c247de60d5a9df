"""NCCL requests (send, receive, collective) of each communication operation."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import is_among, is_matched
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import NCCL_CALLS, REQUESTS

_REQUEST = r"(?i)^(?:p?nccl|rccl|hccl)(Send|Recv|All\w+|Reduce\w*|Broadcast|Bcast|Gather|Scatter)$"

_COLUMNS = ["thread_key", "start_ns", "end_ns", "communicator", "rank", "peer", "size_bytes", "call"]


def match_requests(
    *,
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launches: pl.DataFrame,
    nccl_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Match NCCL requests to the operations that NCCL launched for them.

    NCCL pushes a range around every request. The operation is launched inside it or, where sends and
    receives are grouped, when the group ends; it then serves all requests since the previous such launch
    of the thread.

        thread   [GroupStart] [Send] [Recv] [GroupEnd  ^ ]     ^ launches an operation with two requests

    Args:
        ranges: `RANGES`.
        api_calls: `API_CALLS`.
        gpu_ops: `GPU_OPS`, in order of op_id.
        launches: `LAUNCHES`, at least those of communication operations.
        nccl_calls: `NCCL_CALLS`.

    Returns:
        `REQUESTS` by op_id and start of the request; empty where NCCL recorded no ranges.
    """
    is_nccl_op = gpu_ops["is_communication"].to_numpy() & ~is_among(gpu_ops["kind"], ["memcpy", "memset"])
    is_nccl_launch = is_nccl_op[launches["op_id"].to_numpy()]
    if not is_nccl_launch.any():
        return REQUESTS.to_frame()
    requests = _list_requests(ranges, nccl_calls)
    nccl_launches = launches[np.flatnonzero(is_nccl_launch)]
    times = api_calls.select("thread_key", "start_ns", call_end_ns="end_ns")
    calls = pl.concat(
        [nccl_launches.select("op_id"), times[nccl_launches["call_row"]]], how="horizontal"
    ).sort("start_ns")
    around = calls.join_asof(
        requests.with_columns(request_ns="start_ns"),
        on="start_ns",
        by="thread_key",
        strategy="backward",
        check_sortedness=False,
    ).filter(pl.col("end_ns") >= pl.col("call_end_ns"))
    before = requests.join_asof(
        calls, on="start_ns", by="thread_key", strategy="forward", check_sortedness=False
    ).filter(pl.col("op_id").is_not_null())
    direct = around.with_columns(start_ns="request_ns").pipe(conform, REQUESTS)
    grouped = before.join(direct, on="op_id", how="anti").pipe(conform, REQUESTS)
    return pl.concat([direct, grouped]).sort("op_id", "start_ns", maintain_order=True)


def _list_requests(ranges: pl.DataFrame, nccl_calls: pl.DataFrame) -> pl.DataFrame:
    """List the ranges that NCCL pushes around requests, by start."""
    is_request = is_matched(ranges["name"], _REQUEST)
    columns = ["range_id", "process_key", "thread_key", "start_ns", "end_ns", "name"]
    requests = ranges[columns][np.flatnonzero(is_request)]
    call = requests["name"].cast(pl.String).str.extract(_REQUEST).alias("call")
    requests = requests.hstack([call])
    if nccl_calls.is_empty():
        nothing = NCCL_CALLS.to_frame()["communicator", "rank", "peer", "size_bytes"].clear(len(requests))
        return requests.hstack(nothing).sort("start_ns")[_COLUMNS]
    ranks = (
        nccl_calls.filter(pl.col("rank").is_not_null())
        .join(ranges.select("range_id", "process_key"), on="range_id")
        .unique(["process_key", "communicator"], keep="last", maintain_order=True)
        .select("process_key", "communicator", "rank")
    )
    return (
        requests.join(nccl_calls.drop("rank", "rank_count"), on="range_id", how="left")
        .join(ranks, on=["process_key", "communicator"], how="left")
        .sort("start_ns")
        .select(_COLUMNS)
    )
