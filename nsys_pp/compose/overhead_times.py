"""Overhead of profiling in steps: reports are read once more, with the tables of overhead."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.compose.requested import move_to_report
from nsys_pp.compose.run import Run
from nsys_pp.frames.conform import conform
from nsys_pp.frames.groups import Group
from nsys_pp.frames.report import Report
from nsys_pp.frames.requested import OVERHEAD_TIMES
from nsys_pp.frames.training import Training
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import is_part, read_report

_GROUPS: frozenset[Group] = frozenset({"ops", "show_profiler"})
_ROWS = ("profiler overhead", "CUDA overhead")  # rows of a trace
_OF_CUDA = r"(?i)\bloading\b|\bjit\b|compil"  # CUDA does this without a profiler, too


def read_overhead_times(run: Run, training: Training) -> pl.DataFrame:
    """Read the overhead of profiling in the steps of all lanes (`OVERHEAD_TIMES`); parts have none."""
    steps = training.steps.select("lane", "step", "start_ns", "end_ns").join(
        training.lanes.select("lane", "report", "process_key", "device_id"), on="lane"
    )
    wanted = {
        recorded.path: move_to_report(steps.filter(pl.col("report") == at), run.clocks.clocks[at])
        for at, recorded in enumerate(run.inputs)
        if not is_part(recorded.path)
    }
    work = partial(_read_overhead, steps=wanted, nsys=run.batch.nsys)
    read = run.batch.map("reading overhead", [path for path in wanted if len(wanted[path])], work)
    return pl.concat([OVERHEAD_TIMES.to_frame(), *read.values()])


def _read_overhead(path: Path, steps: Mapping[Path, pl.DataFrame], nsys: str | None) -> pl.DataFrame:
    report = build_report(read_report(path, need=_GROUPS, nsys=nsys), is_last_use=True)
    return measure_overhead(report, steps[path])


def measure_overhead(report: Report, steps: pl.DataFrame) -> pl.DataFrame:
    """Measure the overhead in the steps of each lane.

    Args:
        report: Read with operations, and the profiler on request.
        steps: lane, process_key, device_id, step, start_ns and end_ns, on the report's clock.

    Returns:
        `OVERHEAD_TIMES`; times of one name at once on several threads count once.
    """
    overhead = report.activities.filter(pl.col("row").is_in(_ROWS)).drop_nulls(["end_ns", "thread_key"])
    overhead = overhead.select(
        "thread_key", "start_ns", "end_ns", name=pl.col("name").cast(pl.String)
    ).with_columns(is_of_profiler=~pl.col("name").str.contains(_OF_CUDA))
    of_lanes = steps.select("lane", "process_key", "device_id").unique(maintain_order=True)
    on_lanes = of_lanes.join(_find_launching(report), on=["process_key", "device_id"], how="inner")
    rows = on_lanes.join(overhead, on="thread_key", how="inner")
    whole = rows.filter("is_of_profiler").with_columns(name=pl.lit(None, pl.String))
    parts = [OVERHEAD_TIMES.to_frame()]
    for (lane, name, is_of_profiler), own in (
        pl.concat([rows, whole])
        .partition_by("lane", "name", "is_of_profiler", as_dict=True, maintain_order=True)
        .items()
    ):
        of_lane = steps.filter(pl.col("lane") == lane).sort("start_ns")
        parts.append(
            _measure(own, of_lane)
            .with_columns(
                lane=pl.lit(lane, pl.UInt32),
                name=pl.lit(name, pl.String),
                is_of_profiler=pl.lit(is_of_profiler),
            )
            .pipe(conform, OVERHEAD_TIMES)
        )
    return pl.concat(parts)


def _find_launching(report: Report) -> pl.DataFrame:
    """Find the threads that launch operations on each device: process_key, device_id, thread_key."""
    launches = match_launches(report.api_calls, report.gpu_ops)
    ops = report.gpu_ops.select("process_key", "device_id")[launches["op_id"].to_numpy()]
    threads = report.api_calls["thread_key"].gather(launches["call_row"])
    return ops.with_columns(threads.alias("thread_key")).unique(maintain_order=True)


def _measure(overhead: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Measure the union of overhead in each step, and outside: step, time_ns, count, step_ns; without steps with none."""
    start, end = _unite(overhead["start_ns"].to_numpy(), overhead["end_ns"].to_numpy())
    since, until = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    inside = _cover(start, end, until) - _cover(start, end, since)
    begins = np.sort(overhead["start_ns"].to_numpy())
    count = np.searchsorted(begins, until) - np.searchsorted(begins, since)
    own = steps.select(
        "step",
        time_ns=pl.Series(inside),
        count=pl.Series(count),
        step_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    rest = pl.DataFrame(
        {
            "step": [None],
            "time_ns": [int((end - start).sum()) - int(inside.sum())],
            "count": [len(begins) - int(count.sum())],
            "step_ns": [None],
        },
        schema=own.schema,
    )
    return pl.concat([own, rest]).filter(pl.col("time_ns") > 0)


def _unite(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Unite intervals: starts and ends of disjoint ones, ascending."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    begins = np.append(True, start[1:] > reach[:-1])
    return start[begins], reach[np.append(np.flatnonzero(begins)[1:], len(start)) - 1]


def _cover(start: Int64s, end: Int64s, time: Int64s) -> Int64s:
    """Return the time that disjoint intervals cover before each time."""
    total = np.append(0, np.cumsum(end - start))
    at = np.searchsorted(start, time, side="right")
    last = np.where(at > 0, end[np.maximum(at - 1, 0)], time)
    return np.asarray(total[at] - np.maximum(last - time, 0))
