"""Launches: API calls, and NCCL's requests, paired with the GPU operations that they caused."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    gather,
    gather_rows,
    is_among,
    keep_rows,
    list_distinct,
    numbers,
)
from nsys_pp.arrays.names import is_named, list_names
from nsys_pp.arrays.search import expand_windows, find_first, find_last
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_frame, build_nulls
from nsys_pp.frames.report import LAUNCHES, NCCL_CALLS, REQUESTS

_CORRELATION_BITS = 40  # CUPTI's ids have 32; the process index is above them
_MOST_CALLS = 1_000  # of one correlation id: real ones have a few, and each pair takes memory


def match_launches(api_calls: pl.DataFrame, gpu_ops: pl.DataFrame) -> pl.DataFrame:
    """Pair every GPU operation with the API call that caused it.

    Joined on (process, correlation id): CUPTI numbers correlation ids inside each process.
    One call can cause many operations (a CUDA graph), and a correlation id that two calls of
    a process share gives a pair with each, as in NVIDIA's own join; `nsys_pp.arrays.launch_calls`
    finds the one that launched the operation. An id of more than `_MOST_CALLS` calls is damaged, and none.

    Args:
        api_calls: `API_CALLS`, any order.
        gpu_ops: `GPU_OPS`, any order.

    Returns:
        `LAUNCHES`, one row per pair, by op_id; operations without a correlation id or without
        a call have no row. Empty in, empty out.
    """
    gpu_ops = gpu_ops[["op_id", "process_key", "correlation_id"]]
    if any(column.null_count() for column in gpu_ops):
        gpu_ops = gpu_ops.drop_nulls()
    if api_calls.is_empty() or gpu_ops.is_empty():
        return LAUNCHES.to_frame()
    process_key = api_calls["process_key"].to_numpy()
    processes = list_distinct(process_key)
    call_keys = _correlation_keys(api_calls, processes)
    op_keys = _correlation_keys(gpu_ops, processes)

    by_key = np.argsort(call_keys, kind="stable")
    call_keys = call_keys[by_key]
    first, last = (np.searchsorted(call_keys, op_keys, side=side) for side in ("left", "right"))
    first = np.where(last - first > _MOST_CALLS, last, first)
    op_ids = np.repeat(gpu_ops["op_id"].to_numpy(), last - first)
    matched = by_key[expand_windows(first, last)]
    launches = build_frame(
        [
            pl.Series("op_id", op_ids, LAUNCHES["op_id"]),
            pl.Series("call_row", matched.astype(np.uint32), LAUNCHES["call_row"]),
        ]
    )
    return launches if launches["op_id"].is_sorted() else launches.sort("op_id", maintain_order=True)


def find_launch_devices(gpu_ops: pl.DataFrame, launches: pl.DataFrame) -> Int64s:
    """Find the device of each launch; -1 where it is unknown.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        launches: `LAUNCHES`.
    """
    device = gpu_ops["device_id"].fill_null(-1).to_numpy().astype(np.int64)
    return np.asarray(device[launches["op_id"].to_numpy()])


def _correlation_keys(frame: pl.DataFrame, processes: Int64s) -> Int64s:
    """Pack (process, correlation id) into one integer.

    Processes outside `processes` share an unused index.
    """
    ids = frame["correlation_id"].fill_null(-1).to_numpy() & ((1 << _CORRELATION_BITS) - 1)
    process_key = frame["process_key"].to_numpy()
    if len(processes) == 1 and (process_key == processes[0]).all():
        return ids
    index = np.minimum(np.searchsorted(processes, process_key), len(processes) - 1)
    index[processes[index] != process_key] = len(processes)
    return (index << _CORRELATION_BITS) | ids


_REQUEST = r"(?i)^(?:p?nccl|rccl|hccl)(Send|Recv|All\w+|Reduce\w*|Broadcast|Bcast|Gather|Scatter)$"

_COLUMNS = ["thread_key", "start_ns", "end_ns", "communicator", "rank", "peer", "size_bytes", "call"]
_TIMES = ("thread_key", "start_ns", "end_ns")


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
    nccl_launches = keep_rows(launches, is_nccl_launch)
    op, row = _pair(api_calls, nccl_launches, *(numbers(requests[name]) for name in _TIMES))
    order = np.lexsort((numbers(requests["start_ns"])[row], op))
    return gather_rows(requests, REQUESTS.names()[1:], row[order]).insert_column(
        0, pl.Series("op_id", op[order].astype(np.uint32))
    )


def _pair(
    api_calls: pl.DataFrame, launches: pl.DataFrame, thread: Int64s, start: Int64s, end: Int64s
) -> tuple[Int64s, Int64s]:
    """Pair operations and requests: launches inside a request first, then requests before a launch.

    Args:
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of operations of NCCL.
        thread: Of each request; by start.
        start: Of each request.
        end: Of each request.

    Returns:
        op_id and row of the request of each pair.
    """
    op, call = numbers(launches["op_id"]), numbers(launches["call_row"])
    by_start = np.argsort(numbers(api_calls["start_ns"])[call], kind="stable")
    op, call = op[by_start], call[by_start]
    call_thread, call_start, call_end = (numbers(api_calls[name])[call] for name in _TIMES)
    around = find_last(call_thread, call_start, thread, start)
    is_inside = (around >= 0) & (np.append(end, NEVER)[around] >= call_end)
    following = find_first(thread, start, call_thread, call_start)
    grouped = np.flatnonzero(following >= 0)
    grouped = grouped[~np.isin(op[following[grouped]], op[is_inside])]
    return (
        np.concatenate([op[is_inside], op[following[grouped]]]),
        np.concatenate([around[is_inside], grouped]),
    )


def _list_requests(ranges: pl.DataFrame, nccl_calls: pl.DataFrame) -> pl.DataFrame:
    # ranges that NCCL pushes around requests, by start
    is_request = is_named(ranges["name"], _REQUEST)
    columns = ["range_id", "process_key", "thread_key", "start_ns", "end_ns", "name"]
    requests = keep_rows(ranges[columns], is_request)
    names = list_names(requests["name"])
    requests = requests.hstack([gather(names.texts.str.extract(_REQUEST), names.row).alias("call")])
    if nccl_calls.is_empty():
        nothing = [
            build_nulls(name, NCCL_CALLS[name], len(requests))
            for name in ("communicator", "rank", "peer", "size_bytes")
        ]
        return requests.hstack(nothing)[_COLUMNS].sort("start_ns", maintain_order=True)
    ranks = (
        nccl_calls.filter(pl.col("rank").is_not_null())
        .join(ranges.select("range_id", "process_key"), on="range_id")
        .unique(["process_key", "communicator"], keep="last", maintain_order=True)
        .select("process_key", "communicator", "rank")
    )
    return (
        requests.join(nccl_calls.drop("rank", "rank_count"), on="range_id", how="left")
        .join(ranks, on=["process_key", "communicator"], how="left")
        .sort("start_ns", maintain_order=True)
        .select(_COLUMNS)
    )
