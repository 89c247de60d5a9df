"""Waits of a device for threads that nsys held.

launching thread   launch ) [ CUPTI buffer flush       ) [ launch )
kernels                 gemm )                              [ gemm
cause                        | profiler                |host
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, numbers
from nsys_pp.arrays.intervals import intersect, subtract, unite
from nsys_pp.arrays.search import find_first
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import CAUSE, WAITS
from nsys_pp.training.report.devices import number_devices
from nsys_pp.training.report.launched_ops import LaunchedOps

_INTERVAL = ("thread_key", "start_ns", "end_ns")


def cut_overheads(waits: pl.DataFrame, overheads: pl.DataFrame, *, ops: LaunchedOps) -> pl.DataFrame:
    """Cut the time in which nsys held the launching thread out of the waits with cause "host"; its cause is "profiler".

    Args:
        waits: `WAITS`.
        overheads: `OVERHEADS`.
        ops: Operations of the report.

    Returns:
        `WAITS`. Without overhead of the profiler the same.
    """
    if overheads.is_empty():
        return waits
    held = overheads.filter("is_of_profiler")
    late = waits.filter(cause="host")
    if held.is_empty() or late.is_empty():
        return waits
    thread = find_late_threads(late, ops)
    start, end = numbers(late["start_ns"]), numbers(late["end_ns"])
    found = intersect(thread, start, end, unite(*(numbers(held[name]) for name in _INTERVAL)))
    if not len(found.row):
        return waits
    rest = subtract(start, end, found)
    parts = [
        waits.filter(pl.col("cause").ne_missing("host")),
        late[np.setdiff1d(np.arange(len(late)), found.row)],
        _replace(late[rest.row], rest.start, rest.end),
        _replace(late[found.row], found.start, found.end).with_columns(cause=pl.lit("profiler", CAUSE)),
    ]
    return pl.concat(parts).sort("process_key", "device_id", "start_ns").pipe(conform, WAITS)


def _replace(waits: pl.DataFrame, start: Int64s, end: Int64s) -> pl.DataFrame:
    return waits.with_columns(pl.Series("start_ns", start), pl.Series("end_ns", end))


def find_late_threads(waits: pl.DataFrame, ops: LaunchedOps) -> Int64s:
    """Find the thread that launched the operation after each wait; `NEVER` without one.

    Args:
        waits: process_key, device_id, end_ns.
        ops: Operations of the report.
    """
    order = np.argsort(ops.start, kind="stable")
    group, end = number_devices(waits, ops.devices), numbers(waits["end_ns"])
    at = find_first(group, end, ops.device[order], ops.start[order])
    threads: Int64s = np.append(ops.thread, NEVER)[np.append(order, -1)[at]]
    return threads
