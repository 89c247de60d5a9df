"""Times of batches on their devices, by the operations that each launched: the host may be far ahead of the GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    has_value,
    is_among,
    list_distinct,
    numbers,
    pack,
)
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.training.report.devices import number_devices
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.step_edges import list_step_ops

_GRAPH_LAUNCH = "GraphLaunch"


def build_batch_times(spans: pl.DataFrame, launched_ops: LaunchedOps) -> pl.DataFrame:
    """Measure the operations of each batch, and the gap to the next batch of its device.

    A batch ends with its last operation on main streams, or with its last kernel on another stream that the same thread
    launched: engines sample on streams of their own.

    Args:
        spans: process_key, device_id, host_start_ns, host_end_ns of each batch; by device and start.
        launched_ops: Operations of the report.

    Returns:
        The measured columns of `BATCHES`, row by row, and thread_key: the thread that launched the next batch.
    """
    device, ops = number_devices(spans, launched_ops.devices), list_step_ops(launched_ops)
    row = _find_batches(ops.device, ops.launch, device, spans)
    count = len(spans)

    launcher = launched_ops.thread
    counted = np.flatnonzero((row >= 0) & ~ops.is_aside)
    order = counted[np.argsort(ops.start[counted], kind="stable")]
    batch, first = np.unique(row[order], return_index=True)
    start, end, thread = (np.full(count, NEVER) for _ in range(3))
    start[batch] = ops.start[order[first]]
    thread[batch] = launcher[order[first]]
    is_own = ops.is_aside & (row >= 0) & launched_ops.is_kernel
    is_own &= (launcher == np.append(thread, NEVER)[row]) & (launcher != NEVER)
    counted = np.union1d(counted, np.flatnonzero(is_own))
    np.maximum.at(end, row[counted], ops.end[counted])

    busy, gap, until = np.full(count, NEVER), np.full(count, NEVER), np.full(count, NEVER)
    for number in list_distinct(device):
        own = np.flatnonzero((device == number) & (start != NEVER))
        mine = ops.device == number
        busy[own] = _cover(ops.start[mine], ops.end[mine], start[own], end[own])
        if len(own) > 1:
            gap[own[:-1]] = np.maximum(start[own[1:]] - np.maximum.accumulate(end[own])[:-1], 0)
            until[own[:-1]] = thread[own[1:]]
    frame = [
        as_numbers(name, values)
        for name, values in {"start_ns": start, "end_ns": end, "busy_ns": busy, "gap_ns": gap}.items()
    ]
    sums = _sum_kernels(row, launched_ops, count)
    return pl.DataFrame([*frame, as_numbers("thread_key", until), *sums])


def _find_batches(of_device: Int64s, launch: Int64s, device: Int64s, spans: pl.DataFrame) -> Int64s:
    """Find the batch in whose span on the host each operation was launched; -1 outside all."""
    begin, until = numbers(spans["host_start_ns"]), numbers(spans["host_end_ns"])
    row = np.full(len(of_device), -1)
    for number in list_distinct(device):
        own, mine = np.flatnonzero(device == number), np.flatnonzero(of_device == number)
        at = np.searchsorted(begin[own], launch[mine], side="right") - 1
        is_inside = (at >= 0) & (launch[mine] <= until[own][at])
        row[mine[is_inside]] = own[at[is_inside]]
    return row


def _cover(start: Int64s, end: Int64s, since: Int64s, until: Int64s) -> Int64s:
    """Measure the union of intervals within spans `[since, until)`."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    begin = np.maximum(start, np.append(NEVER, reach[:-1]))
    length = np.maximum(reach - begin, 0)
    total = np.append(0, np.cumsum(length))

    def measure(time: Int64s) -> Int64s:
        """Measure the union before a time."""
        at = np.searchsorted(begin, time, side="right")
        last = np.maximum(at - 1, 0)
        after: Int64s = total[last] + np.clip(time - begin[last], 0, length[last])
        return np.where(at == 0, 0, after)

    return measure(until) - measure(since)


def _sum_kernels(row: Int64s, ops: LaunchedOps, count: int) -> list[pl.Series]:
    """Sum the kernels of each batch, and count the calls that launched them: all, and those in CUDA graphs."""
    kernels, call, gpu_ops = np.flatnonzero((row >= 0) & ops.is_kernel), ops.call, ops.gpu_ops
    launched = np.append(ops.calls.contain(_GRAPH_LAUNCH), False)[call[kernels]]
    in_graph: Bools = launched | has_value(gpu_ops["graph_id"])[kernels]
    in_graph |= is_among(gpu_ops["kind"], ("graph",))[kernels]
    duration = (ops.end - ops.start)[kernels]
    series = []
    for name, mask in (("", np.ones(len(kernels), np.bool_)), ("graph_", in_graph)):
        rows, calls = row[kernels[mask]], call[kernels[mask]]
        total = np.zeros(count, dtype=np.int64)
        np.add.at(total, rows, duration[mask])
        # several kernels of a graph have one call; kernels without a known call count each
        _, first = np.unique(
            pack(rows, np.where(calls < 0, -1 - np.arange(len(calls)), calls)), return_index=True
        )
        series += [
            pl.Series("kernel_ns" if not name else "graph_ns", total),
            pl.Series(f"{name}launch_count", np.bincount(rows[first], minlength=count)),
        ]
    return series
