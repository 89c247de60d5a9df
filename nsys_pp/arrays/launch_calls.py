"""Launch calls: the API call that launched each GPU operation.

Several calls of a process may share a correlation id, and then `LAUNCHES` has a row for each: a driver call
inside a runtime call, or two calls long after each other whose ids were reused. The launch call of an
operation is the latest of its calls that began at or before the operation; if it lies inside others of them
on its thread, the outermost one. Where every call began later, which only errors of the clocks explain, it is
the earliest call.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, numbers, pick
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import MOST_EARLY_NS


def find_launch_calls(
    op_id: pl.Series, *, gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Int64s:
    """Find the launch call of each operation.

    Args:
        op_id: Of the operations, any order.
        gpu_ops: `GPU_OPS`, at least these operations, any order.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`, at least of these operations.

    Returns:
        Row of `API_CALLS` per operation, in order; -1 where no call is known.
    """
    op, call = (launches[name].to_numpy() for name in ("op_id", "call_row"))
    wanted = op_id.to_numpy()
    row = np.full(max(int(op.max(initial=0)), int(wanted.max(initial=0))) + 1, -1)
    row[op] = call
    is_shared = op[1:] == op[:-1]
    if is_shared.any():
        pairs = np.flatnonzero(np.append(is_shared, False) | np.insert(is_shared, 0, False))
        known = gpu_ops["op_id"].to_numpy()  # also operations without a launch
        start = np.full(max(len(row), int(known.max(initial=0)) + 1), NEVER)
        start[known] = gpu_ops["start_ns"].to_numpy()
        picked = pairs[_pick_pairs(op[pairs], call[pairs], start[op[pairs]], api_calls)]
        row[op[picked]] = call[picked]
    return np.asarray(row[wanted])


def gather_calls(column: pl.Series, row: Int64s) -> Int64s:
    """Return the values of a column of `API_CALLS` in some rows; `NEVER` where the row is -1."""
    return pick(numbers(column), row, NEVER)


def _pick_pairs(op: Int64s, call: Int64s, op_start: Int64s, api_calls: pl.DataFrame) -> Int64s:
    # pairs come by operation
    start, end, thread = (api_calls[name].to_numpy()[call] for name in ("start_ns", "end_ns", "thread_key"))
    order = np.lexsort((-end, start, op))  # an enclosing call is before the calls inside it
    group = np.cumsum(np.diff(op[order], prepend=op[order[:1]]) != 0)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    is_possible = start[order] <= op_start[order]
    latest = first + np.maximum(np.bincount(group, weights=is_possible).astype(np.int64) - 1, 0)
    of_latest = order[latest[group]]
    is_around = (np.arange(len(order)) <= latest[group]) & (end[order] >= end[of_latest])
    is_around &= thread[order] == thread[of_latest]
    around = np.flatnonzero(is_around)
    return order[around[np.unique(group[around], return_index=True)[1]]]


def mark_off_clocks(device: Int64s, early_ns: Int64s, device_count: int) -> Bools:
    """Mark the devices whose clock is off: most operations start too early before their launch call.

    Args:
        device: Number of the device of each operation whose call is known.
        early_ns: Start of the call minus start of the operation.
        device_count: Number of devices.
    """
    count = np.bincount(device, minlength=device_count)
    early_count = np.bincount(device, early_ns > MOST_EARLY_NS, minlength=device_count)
    return np.asarray(2 * early_count > count)
