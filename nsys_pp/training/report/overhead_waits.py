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
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.search import find_first
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.causes import CAUSE, WAITS
from nsys_pp.frames.conform import conform
from nsys_pp.training.report.devices import list_devices, number_devices

_INTERVAL = ("thread_key", "start_ns", "end_ns")


def cut_overheads(
    waits: pl.DataFrame,
    overheads: pl.DataFrame,
    *,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """Cut the time in which nsys held the launching thread out of the waits with cause "host"; its cause is "profiler".

    Args:
        waits: `WAITS`.
        overheads: `OVERHEADS`.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        `WAITS`. Without overhead of the profiler the same.
    """
    held = overheads.filter("is_of_profiler")
    late = waits.filter(cause="host")
    if held.is_empty() or late.is_empty():
        return waits
    thread = find_late_threads(late, gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
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


def find_late_threads(
    waits: pl.DataFrame, *, gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> Int64s:
    """Find the thread that launched the operation after each wait; `NEVER` without one.

    Args:
        waits: process_key, device_id, end_ns.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
    """
    devices = list_devices(gpu_ops)
    ops = gpu_ops.select("process_key", "device_id", "op_id", "start_ns").sort("start_ns")
    at = find_first(
        number_devices(waits, devices),
        numbers(waits["end_ns"]),
        number_devices(ops, devices),
        numbers(ops["start_ns"]),
    )
    call = np.full(len(waits), -1)
    found = np.flatnonzero(at >= 0)
    if len(found):
        call[found] = find_launch_calls(
            ops["op_id"].gather(at[found]), gpu_ops=gpu_ops, api_calls=api_calls, launches=launches
        )
    threads = gather_calls(api_calls["thread_key"], call)
    threads[call < 0] = NEVER
    return threads
