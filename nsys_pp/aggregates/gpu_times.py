"""Busy time of devices by kind of work: unions of operations, by step."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.step_times import sort_last
from nsys_pp.aggregates.unions import Union, unite
from nsys_pp.arrays.columns import as_numbers, numbers, pack
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import number_keys
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import GPU_TIMES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, OP_KIND

_STEP = ("process_key", "device_id", "step")
_WORKS = ("compute", "communication", "memcpy", "memset")
_MEASURES = (
    *("span_ns", "overlap_ns", "any_overlap_ns", "busy_ns", "kernel_ns", "compute_ns"),
    *("communication_ns", "memcpy_ns", "memset_ns", "any_communication_ns"),
)


def measure_gpu(
    gpu_ops: pl.DataFrame, *, host_communication: pl.DataFrame, windows: pl.DataFrame
) -> pl.DataFrame:
    """Measure the time of each kind of work on each device.

    Args:
        gpu_ops: `GPU_OPS`.
        host_communication: process_key, start_ns, end_ns of communication on the CPU, as
            `nsys_pp.aggregates.host_times.find_communication` returns it.
        windows: `DEVICE_WINDOWS`.

    Returns:
        `GPU_TIMES`: one row per device and step, and one for the time outside all steps, by device and
        step, null last. Operations outside all windows do not count. Without windows, empty.
    """
    if windows.is_empty():
        return GPU_TIMES.to_frame()
    work = _number_works(gpu_ops)
    columns = ("process_key", "device_id", "start_ns", "end_ns")
    process, device, start, end = (numbers(gpu_ops[name]) for name in columns)
    host_process, host_start, host_end = (
        numbers(host_communication[name]) for name in ("process_key", *columns[2:])
    )
    keys = [numbers(windows[name]) for name in _STEP]
    first, last = (numbers(windows[name]) for name in columns[2:])
    measured = np.zeros((len(_MEASURES), len(windows)), dtype=np.int64)
    begins = number_keys(pack(*keys[:2]))[0]
    for begin, until in zip(begins, [*begins[1:], len(windows)], strict=True):
        own, is_own = slice(begin, until), (process == keys[0][begin]) & (device == keys[1][begin])
        unions = [
            unite(start[of], end[of]) for of in (is_own & (work == code) for code in range(len(_WORKS)))
        ]
        of_host = host_process == keys[0][begin]
        host = unite(host_start[of_host], host_end[of_host])
        measured[:, own] = _measure(*unions, host=host, first=first[own], last=last[own])
    first_row, number = number_keys(pack(*keys))
    sums = np.zeros((len(_MEASURES), len(first_row)), dtype=np.int64)
    np.add.at(sums.T, number, measured.T)
    process, device, step = (key[first_row] for key in keys)
    order = sort_rows(process, device, sort_last(step))
    steps = [as_numbers(name, key[first_row][order]) for name, key in zip(_STEP, keys, strict=True)]
    times = [pl.Series(name, values[order]) for name, values in zip(_MEASURES, sums, strict=True)]
    return conform(pl.DataFrame([*steps, *times]), GPU_TIMES)


def _number_works(gpu_ops: pl.DataFrame) -> Int64s:
    """Number the work of each operation, as in `_WORKS`; -1 for other kinds."""
    categories = OP_KIND.categories.to_list()
    code_of = [_WORKS.index(kind) if kind in _WORKS else -1 for kind in categories]
    code_of = [0 if kind in KERNEL_KINDS else code for kind, code in zip(categories, code_of, strict=True)]
    work: Int64s = np.array(code_of)[numbers(gpu_ops["kind"])]
    work[gpu_ops["is_communication"].to_numpy() & (work == 0)] = 1
    return work


def _measure(
    compute: Union,
    communication: Union,
    memcpy: Union,
    memset: Union,
    *,
    host: Union,
    first: Int64s,
    last: Int64s,
) -> list[Int64s]:
    """Measure the work of one device in each of its windows: `_MEASURES`."""
    kernel, memory, any_communication = compute | communication, memcpy | memset, communication | host
    unions = (kernel | memory, kernel, compute, communication, memcpy, memset, any_communication)
    return [
        last - first,
        compute.overlap_within(communication, first, last),
        compute.overlap_within(any_communication, first, last),
        *(union.within(first, last) for union in unions),
    ]
