"""Time of each activity of a process on the CPU, by step, across its threads."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.aggregates.groups import split_rows
from nsys_pp.aggregates.unions import count_within, sum_within, unite
from nsys_pp.arrays.columns import is_matched, keep_rows, numbers
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.aggregates import ACTIVITY, HOST_TIMES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import WAITING_CALL

_PHASES = ("forward", "backward", "optimizer", "data")
_SPAN = ["process_key", "start_ns", "end_ns"]
_HOST_SPAN = {"start_ns": "host_start_ns", "end_ns": "host_end_ns"}


def measure_host(
    *,
    windows: pl.DataFrame,
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
    thread_runs: pl.DataFrame,
) -> pl.DataFrame:
    """Measure the time of each activity in each process.

    Args:
        windows: `HOST_WINDOWS`.
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS` of these.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        thread_runs: `THREAD_RUNS`.

    Returns:
        `HOST_TIMES`, by process, step (null last) and activity. An activity has a row if any of it
        lies in the step; "span" always has one. An interval that crosses a border adds its pieces to both steps, and
        to `count` where it begins. Intervals outside all windows do not count. Without windows, empty.
    """
    named = operators.filter(pl.col("name").is_not_null())["range_id"]
    of_nccl = operators.filter(pl.col("name").is_null())["range_id"]  # communication, not operators
    activities = {
        "range": keep_rows(ranges[_SPAN], ~_is_among(ranges, of_nccl)),
        "operator": keep_rows(ranges[_SPAN], _is_among(ranges, named)),
        **{kind: _find_phases(jobs, kind) for kind in _PHASES},
        "communication": find_communication(ranges, operators),
        "cuda": api_calls,
        "sync": keep_rows(api_calls[_SPAN], is_matched(api_calls["name"], WAITING_CALL)),
        "os": os_calls,
        "cpu": thread_runs,
    }
    of_process = windows.partition_by("process_key", as_dict=True)
    parts = [_measure(name, frame.select(_SPAN), of_process) for name, frame in activities.items()]
    span = pl.col("end_ns") - pl.col("start_ns")
    parts.append(windows.select("process_key", "step", activity=pl.lit("span"), count=1, union_ns=span))
    return (
        pl.concat(part.cast({"activity": ACTIVITY}).pipe(conform, HOST_TIMES) for part in parts)
        .group_by("process_key", "step", "activity")
        .agg(pl.all().sum())
        .sort("process_key", "step", "activity", nulls_last=True)
    )


def find_communication(ranges: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of communication on the CPU.

    Args:
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS` of these.

    Returns:
        process_key, start_ns, end_ns.
    """
    named = operators.filter("is_communication")["range_id"]
    return keep_rows(ranges[_SPAN], _is_among(ranges, named))


def _is_among(ranges: pl.DataFrame, range_ids: pl.Series) -> Bools:
    return mark_members(numbers(ranges["range_id"]), numbers(range_ids))


def _find_phases(jobs: pl.DataFrame, kind: str) -> pl.DataFrame:
    """List the outermost jobs of a kind, on the CPU."""
    own = (
        jobs.filter(pl.col("kind") == kind)
        .unique("range_id")
        .select("process_key", "thread_key", **_HOST_SPAN)
        .sort("thread_key", "start_ns", "end_ns", descending=[False, False, True])
    )
    until = pl.col("end_ns").cum_max().shift().over("thread_key")
    return own.filter((pl.col("end_ns") > until).fill_null(value=True))


def _measure(
    activity: str, intervals: pl.DataFrame, windows: Mapping[tuple[object, ...], pl.DataFrame]
) -> pl.DataFrame:
    """Measure one activity in the windows of each process; windows without it are dropped."""
    parts = [HOST_TIMES.to_frame()]
    start, end = (intervals[name].to_numpy() for name in ("start_ns", "end_ns"))
    for process, rows in split_rows(intervals, ["process_key"]).items():
        if process in windows:
            times = _measure_process(start[rows], end[rows], windows[process], is_summed=activity == "cpu")
            parts.append(times.with_columns(activity=pl.lit(activity)).pipe(conform, HOST_TIMES))
    return pl.concat(parts).filter((pl.col("count") > 0) | (pl.col("union_ns") > 0))


def _measure_process(start: Int64s, end: Int64s, windows: pl.DataFrame, *, is_summed: bool) -> pl.DataFrame:
    first, last = (windows[name].to_numpy() for name in ("start_ns", "end_ns"))
    time = sum_within(start, end, first, last) if is_summed else unite(start, end).within(first, last)
    return windows.with_columns(
        count=pl.Series(count_within(start, first, last)),
        union_ns=pl.Series(time),
    )
