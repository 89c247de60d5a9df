"""Launches: API calls paired with the GPU operations that they caused."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
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
    gpu_ops = gpu_ops.select("op_id", "process_key", "correlation_id").drop_nulls()
    if api_calls.is_empty() or gpu_ops.is_empty():
        return LAUNCHES.to_frame()
    processes = api_calls["process_key"].unique().sort().to_numpy()
    call_keys = _correlation_keys(api_calls, processes)
    op_keys = _correlation_keys(gpu_ops, processes)

    call_rows = None
    if (call_keys[1:] < call_keys[:-1]).any():
        call_rows = np.argsort(call_keys, kind="stable")
        call_keys = call_keys[call_rows]
    first = np.searchsorted(call_keys, op_keys, side="left")
    if (call_keys[1:] == call_keys[:-1]).any():
        count = np.searchsorted(call_keys, op_keys, side="right") - first
    else:
        count = (call_keys[np.minimum(first, len(call_keys) - 1)] == op_keys).astype(np.int64)

    op_ids = gpu_ops["op_id"].to_numpy()
    if (count == 1).all():
        matched = first
    else:
        op_ids = np.repeat(op_ids, count)
        matched = expand_windows(first, first + count)
    if call_rows is not None:
        matched = call_rows[matched]
    return pl.DataFrame({"op_id": op_ids, "call_row": matched.astype(np.uint32)}, schema=LAUNCHES).sort(
        "op_id", maintain_order=True
    )


def _correlation_keys(frame: pl.DataFrame, processes: Int64s) -> Int64s:
    """Pack (process, correlation id) into one integer; processes outside `processes` share an unused index."""
    process_key = frame["process_key"].to_numpy()
    index = np.minimum(np.searchsorted(processes, process_key), len(processes) - 1)
    index[processes[index] != process_key] = len(processes)
    correlation_id = frame["correlation_id"].fill_null(-1).to_numpy()
    return (index << _CORRELATION_BITS) | (correlation_id & ((1 << _CORRELATION_BITS) - 1))
