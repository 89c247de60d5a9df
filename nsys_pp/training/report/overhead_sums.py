"""Sums of the overhead of launching threads by step."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.intervals import Intervals, intersect, unite
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import process_key
from nsys_pp.frames.report import OVERHEAD_SUMS
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.overhead_waits import find_late_threads

_FLUSH = r"(?i)flush"  # of buffers that all threads of a process share
_KEYS = ("process_key", "device_id")


def sum_overheads(
    overheads: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    waits: pl.DataFrame,
    launched_ops: LaunchedOps,
) -> pl.DataFrame:
    """Sum the overhead of the threads that launch on each device, by step and name.

    Args:
        overheads: `OVERHEADS`.
        steps: `STEPS`.
        waits: `WAITS`, of which those with cause "host" are late launches.
        launched_ops: Operations of the report.

    Returns:
        `OVERHEAD_SUMS`; times of one name at once on several threads count once. Empty without overhead, or without steps.
    """
    parts = [OVERHEAD_SUMS.to_frame()]
    if overheads.is_empty():
        return parts[0]
    gpu_ops, api_calls, launches = launched_ops.gpu_ops, launched_ops.api_calls, launched_ops.launches
    ops = gpu_ops.select(*_KEYS)[launches["op_id"].to_numpy()]
    threads = api_calls["thread_key"].gather(launches["call_row"])
    launching = ops.with_columns(threads.alias("thread_key")).unique(maintain_order=True)
    for key, of_device in steps.partition_by(_KEYS, as_dict=True, maintain_order=True).items():
        on_device = launching.filter(process_key=key[0], device_id=key[1])
        own = overheads.join(on_device.select("thread_key"), on="thread_key", how="semi")
        whole = own.filter("is_of_profiler").with_columns(name=pl.lit(None, pl.String))
        sums = _sum_by_name(pl.concat([own.drop_nulls("name"), whole]), of_device)
        late = waits.filter(process_key=key[0], device_id=key[1], cause="host")
        late = late.with_columns(thread_key=find_late_threads(late, launched_ops))
        sums.append(_sum_beside(late, overheads, of_device, api_calls))
        device = {name: pl.lit(value, OVERHEAD_SUMS[name]) for name, value in zip(_KEYS, key, strict=True)}
        parts += [part.with_columns(**device).pipe(conform, OVERHEAD_SUMS) for part in sums]
    return pl.concat(parts)


def _sum_by_name(overheads: pl.DataFrame, steps: pl.DataFrame) -> list[pl.DataFrame]:
    """Sum the overhead of a device by name."""
    keys = ["name", "is_of_profiler"]
    return [
        _measure(own, steps).with_columns(
            name=pl.lit(name, pl.String), is_of_profiler=pl.lit(is_of_profiler), beside_ns=pl.lit(0, pl.Int64)
        )
        for (name, is_of_profiler), own in overheads.partition_by(
            keys, as_dict=True, maintain_order=True
        ).items()
    ]


def _sum_beside(
    late: pl.DataFrame, overheads: pl.DataFrame, steps: pl.DataFrame, api_calls: pl.DataFrame
) -> pl.DataFrame:
    """Sum the flushes on other threads during late launches whose thread was inside a CUDA call, by name and step.

    Args:
        late: `WAITS` of a device with cause "host", with the late thread, which no overhead held.
        overheads: `OVERHEADS`.
        steps: `STEPS` of the device.
        api_calls: `API_CALLS`.
    """
    flushes = overheads.filter(pl.col("name").str.contains(_FLUSH), "is_of_profiler")
    if late.is_empty() or flushes.is_empty():
        return OVERHEAD_SUMS.to_frame()
    thread, start, end = (numbers(late[name]) for name in ("thread_key", "start_ns", "end_ns"))
    calls = api_calls.join(late.select("thread_key"), on="thread_key", how="semi")
    called = intersect(thread, start, end, _unite(calls, numbers(calls["thread_key"])))
    parts = [OVERHEAD_SUMS.to_frame()]
    lengths = steps.select("step", step_ns=pl.col("end_ns") - pl.col("start_ns"))
    for (name,), own in flushes.partition_by("name", as_dict=True, maintain_order=True).items():
        flushed = _unite(own, numbers(process_key(own["thread_key"])))
        process = numbers(late["process_key"])[called.row]
        beside = intersect(process, called.start, called.end, flushed)
        parts.append(
            late.select("step")[called.row[beside.row]]
            .with_columns(beside_ns=pl.Series(beside.end - beside.start, dtype=pl.Int64))
            .group_by("step")
            .agg(pl.col("beside_ns").sum())
            .sort("step")
            .join(lengths, on="step", how="left")
            .with_columns(
                name=pl.lit(name, pl.String),
                is_of_profiler=pl.lit(value=True),
                time_ns=pl.lit(0, pl.Int64),
                count=pl.lit(0, pl.Int64),
                process_key=pl.lit(None, pl.Int64),
                device_id=pl.lit(None, pl.Int32),
            )
            .pipe(conform, OVERHEAD_SUMS)
        )
    return pl.concat(parts)


def _unite(frame: pl.DataFrame, owner: Int64s) -> Intervals:
    return unite(owner, numbers(frame["start_ns"]), numbers(frame["end_ns"]))


def _measure(overheads: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Measure the union of overhead in each step, and outside: step, time_ns, count, step_ns; without steps with none."""
    united = _unite(overheads, np.zeros(len(overheads), dtype=np.int64))
    steps = steps.sort("start_ns")
    since, until = numbers(steps["start_ns"]), numbers(steps["end_ns"])
    inside = _cover(united, until) - _cover(united, since)
    begins = np.sort(numbers(overheads["start_ns"]))
    count = np.searchsorted(begins, until) - np.searchsorted(begins, since)
    own = steps.select(
        "step",
        time_ns=pl.Series(inside, dtype=pl.Int64),
        count=pl.Series(count, dtype=pl.Int64),
        step_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    rest = pl.DataFrame(
        {
            "step": [None],
            "time_ns": [int((united.end - united.start).sum()) - int(inside.sum())],
            "count": [len(begins) - int(count.sum())],
            "step_ns": [None],
        },
        schema=own.schema,
    )
    return pl.concat([own, rest]).filter(pl.col("time_ns") > 0)


def _cover(united: Intervals, time: Int64s) -> Int64s:
    """Return the time that disjoint intervals cover before each time."""
    total = np.append(0, np.cumsum(united.end - united.start))
    at = np.searchsorted(united.start, time, side="right")
    last = np.append(united.end, 0)[at - 1]
    last = np.where(at > 0, last, time)
    return np.asarray(total[at] - np.maximum(last - time, 0))
