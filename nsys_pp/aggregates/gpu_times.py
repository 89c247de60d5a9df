"""Busy time of devices by kind of work: unions of operations, by step."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.groups import split_rows
from nsys_pp.aggregates.unions import Union, unite
from nsys_pp.arrays.columns import are_among
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import GPU_TIMES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS

_DEVICE = ["process_key", "device_id"]
_SPAN = ["start_ns", "end_ns"]
_NOTHING = Union(start=np.empty(0, np.int64), end=np.empty(0, np.int64))


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
    ops = _unite_ops(gpu_ops)
    host = _unite_parts(host_communication, ["process_key"])
    parts = [GPU_TIMES.to_frame()]
    for (process, device), own in windows.partition_by(_DEVICE, as_dict=True).items():
        works = ("compute", "communication", "memcpy", "memset")
        of_device = [ops.get((process, device, name), _NOTHING) for name in works]
        times = _measure(*of_device, host=host.get((process,), _NOTHING), windows=own)
        parts.append(own.with_columns(**times).pipe(conform, GPU_TIMES))
    return (
        pl.concat(parts)
        .group_by(*_DEVICE, "step")
        .agg(pl.all().sum())
        .sort(*_DEVICE, "step", nulls_last=True)
        .pipe(conform, GPU_TIMES)
    )


def _unite_ops(gpu_ops: pl.DataFrame) -> dict[tuple[object, ...], Union]:
    """Unite the operations of each device and kind of work."""
    is_kernel, is_copy, is_set = are_among(gpu_ops["kind"], KERNEL_KINDS, ["memcpy"], ["memset"])
    is_communication = gpu_ops["is_communication"].to_numpy()
    works = {
        "compute": is_kernel & ~is_communication,
        "communication": is_kernel & is_communication,
        "memcpy": is_copy,
        "memset": is_set,
    }
    start, end = (gpu_ops[name].to_numpy() for name in _SPAN)
    united = {}
    for key, rows in split_rows(gpu_ops, _DEVICE).items():
        for work, mask in works.items():
            own = mask[rows]
            united[(*key, work)] = unite(start[rows][own], end[rows][own])
    return united


def _unite_parts(frame: pl.DataFrame, keys: list[str]) -> dict[tuple[object, ...], Union]:
    """Unite the intervals of each key."""
    start, end = (frame[name].to_numpy() for name in _SPAN)
    return {key: unite(start[rows], end[rows]) for key, rows in split_rows(frame, keys).items()}


def _measure(
    compute: Union, communication: Union, memcpy: Union, memset: Union, *, host: Union, windows: pl.DataFrame
) -> dict[str, Int64s]:
    """Measure the work of one device in each of its windows; columns of `GPU_TIMES`."""
    first, last = (windows[name].to_numpy() for name in _SPAN)
    kernel, memory, any_communication = compute | communication, memcpy | memset, communication | host
    measured = {
        "busy_ns": kernel | memory,
        "kernel_ns": kernel,
        "compute_ns": compute,
        "communication_ns": communication,
        "memcpy_ns": memcpy,
        "memset_ns": memset,
        "any_communication_ns": any_communication,
    }
    return {
        "span_ns": last - first,
        "overlap_ns": compute.overlap_within(communication, first, last),
        "any_overlap_ns": compute.overlap_within(any_communication, first, last),
        **{name: union.within(first, last) for name, union in measured.items()},
    }
