"""Time of each activity of a process on the CPU, by step, across its threads."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.step_times import sort_last
from nsys_pp.aggregates.unions import count_within, sum_within, unite
from nsys_pp.arrays.columns import as_numbers, has_value, keep_rows, list_distinct, numbers, pack
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.names import is_matched
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.records import join_rows, select_rows
from nsys_pp.arrays.search import number_keys
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import ACTIVITY, HOST_TIMES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import WAITING_CALL
from nsys_pp.frames.training import JOB_KINDS

_PHASES = ("forward", "backward", "optimizer", "data")
_SPAN = ["process_key", "start_ns", "end_ns"]
_CODES = {name: code for code, name in enumerate(ACTIVITY.categories)}
_WHOLE = _CODES["span"]


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
    has_name = has_value(operators["name"])
    range_id, operator_id = numbers(ranges["range_id"]), numbers(operators["range_id"])
    of_nccl = mark_members(range_id, operator_id[~has_name])  # communication, not operators
    of_range, of_call = _list_intervals(ranges), _list_intervals(api_calls)
    of_job, kind = _list_phases(jobs)
    activities = {
        "range": select_rows(of_range, ~of_nccl),
        "operator": select_rows(of_range, mark_members(range_id, operator_id[has_name])),
        **{name: select_rows(of_job, kind == JOB_KINDS.index(name)) for name in _PHASES},
        "communication": _list_intervals(find_communication(ranges, operators)),
        "cuda": of_call,
        "sync": select_rows(of_call, is_matched(api_calls["name"], WAITING_CALL)),
        "os": _list_intervals(os_calls),
        "cpu": _list_intervals(thread_runs),
    }
    process, step, first, last = (
        numbers(windows[name]) for name in ("process_key", "step", "start_ns", "end_ns")
    )
    codes, rows = [_WHOLE], [_Measured(process, step, np.ones_like(step), last - first)]
    owners = list_distinct(process)
    for name, intervals in activities.items():
        for owner in owners:
            own = np.flatnonzero(process == owner)
            count, time = _measure(
                select_rows(intervals, intervals.process == owner),
                first[own],
                last[own],
                is_summed=name == "cpu",
            )
            codes.append(_CODES[name])
            rows.append(_Measured(process[own], step[own], count, time))
    return _add_up(join_rows(*rows), np.repeat(codes, [len(row.step) for row in rows]))


class _Intervals(Struct, frozen=True):
    """Intervals of processes, any order."""

    process: Int64s
    start: Int64s
    end: Int64s


class _Measured(Struct, frozen=True):
    """Activity in windows of processes."""

    process: Int64s
    step: Int64s
    count: Int64s
    time: Int64s


def _list_intervals(frame: pl.DataFrame) -> _Intervals:
    return _Intervals(*(numbers(frame[name]) for name in _SPAN))


def _add_up(rows: _Measured, activity: Int64s) -> pl.DataFrame:
    """Add up the windows of each process, step and activity (`HOST_TIMES`); rows without activity are left out."""
    kept = np.flatnonzero((rows.count > 0) | (rows.time > 0) | (activity == _WHOLE))
    rows, activity = select_rows(rows, kept), activity[kept]
    first, number = number_keys(pack(rows.process, rows.step, activity))
    count, time = np.zeros((2, len(first)), dtype=np.int64)
    np.add.at(count, number, rows.count)
    np.add.at(time, number, rows.time)
    # steps in order, null last
    step = rows.step[first]
    order = sort_rows(rows.process[first], sort_last(step), activity[first])
    names = pl.Series("activity", ACTIVITY.categories, dtype=ACTIVITY)
    columns = [
        pl.Series("process_key", rows.process[first][order]),
        as_numbers("step", step[order]),
        names[activity[first][order]],
        pl.Series("count", count[order]),
        pl.Series("union_ns", time[order]),
    ]
    return conform(pl.DataFrame(columns), HOST_TIMES)


def find_communication(ranges: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of communication on the CPU.

    Args:
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS` of these.

    Returns:
        process_key, start_ns, end_ns.
    """
    named = numbers(operators["range_id"])[operators["is_communication"].to_numpy()]
    return keep_rows(ranges, mark_members(numbers(ranges["range_id"]), named))[_SPAN]


def _list_phases(jobs: pl.DataFrame) -> tuple[_Intervals, Int64s]:
    """List the jobs on the CPU that lie in no other one of their kind and thread, and the code of the kind of each."""
    distinct, _ = number_keys(numbers(jobs["range_id"]))
    columns = ("kind", "thread_key", "process_key", "host_start_ns", "host_end_ns")
    kind, thread, process, start, end = (numbers(jobs[name])[distinct] for name in columns)
    order = sort_rows(kind, thread, start, -end)
    kind, thread, process, start, end = (column[order] for column in (kind, thread, process, start, end))
    group = np.cumsum(np.append(False, (kind[1:] != kind[:-1]) | (thread[1:] != thread[:-1]))[: len(kind)])
    reach = running_maximum(group, end)
    is_outer = np.ones(len(kind), dtype=np.bool_)
    is_outer[1:] = (group[1:] != group[:-1]) | (end[1:] > reach[:-1])
    return _Intervals(process[is_outer], start[is_outer], end[is_outer]), kind[is_outer]


def _measure(intervals: _Intervals, first: Int64s, last: Int64s, *, is_summed: bool) -> tuple[Int64s, Int64s]:
    """Count the intervals of one process in its windows, and measure their union, or add up their lengths."""
    start, end = intervals.start, intervals.end
    if not len(start):
        return np.zeros_like(first), np.zeros_like(first)
    time = sum_within(start, end, first, last) if is_summed else unite(start, end).within(first, last)
    return count_within(start, first, last), time
