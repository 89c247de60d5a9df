"""Launches: API calls paired with the GPU operations that they caused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.search import find_first_rows
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.report import LAUNCHES

_CORRELATION_BITS = 40  # CUPTI's ids have 32; the process index is above them


def match_launches(api_calls: pl.DataFrame, gpu_ops: pl.DataFrame) -> pl.DataFrame:
    """Pair every GPU operation with the API call that caused it.

    Joined on (process, correlation id): CUPTI numbers correlation ids inside each process.
    One call can cause many operations (a CUDA graph), and a correlation id that two calls of
    a process share gives a pair with each, as in NVIDIA's own join; `nsys_pp.arrays.launch_calls`
    finds the one that launched the operation.

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
    processes = np.sort(process_key[find_first_rows(process_key)])
    call_keys = _correlation_keys(api_calls, processes)
    op_keys = _correlation_keys(gpu_ops, processes)

    call_rows = None
    if (call_keys[1:] < call_keys[:-1]).any():
        call_rows = np.argsort(call_keys, kind="stable")
        call_keys = call_keys[call_rows]
    first = np.searchsorted(call_keys, op_keys)
    count: npt.NDArray[Any]  # calls of each operation
    if (call_keys[1:] == call_keys[:-1]).any():
        count = np.searchsorted(call_keys, op_keys + 1) - first
    else:
        at = first if first.max() < len(call_keys) else np.minimum(first, len(call_keys) - 1)
        count = call_keys[at] == op_keys

    op_ids = gpu_ops["op_id"].to_numpy()
    if count.min() == 1 == count.max():
        matched = first
    else:
        op_ids = np.repeat(op_ids, count.astype(np.int64))
        matched = expand_windows(first, first + count)
    if call_rows is not None:
        matched = call_rows[matched]
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
    of_launches: Int64s = device[launches["op_id"].to_numpy()]
    return of_launches


def _correlation_keys(frame: pl.DataFrame, processes: Int64s) -> Int64s:
    """Pack (process, correlation id) into one integer; processes outside `processes` share an unused index."""
    correlation_id = frame["correlation_id"]
    if correlation_id.null_count():
        correlation_id = correlation_id.fill_null(-1)
    ids = correlation_id.to_numpy() & ((1 << _CORRELATION_BITS) - 1)
    process_key = frame["process_key"].to_numpy()
    if len(processes) == 1 and (process_key == processes[0]).all():
        return ids
    index = np.minimum(np.searchsorted(processes, process_key), len(processes) - 1)
    index[processes[index] != process_key] = len(processes)
    return (index << _CORRELATION_BITS) | ids
