"""Activities of the host in the gaps between batches."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import as_numbers, list_distinct, numbers
from nsys_pp.arrays.innermost import find_innermost
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.training import HOST_ACTIVITIES, HOST_ACTIVITY_COLUMNS
from nsys_pp.training.report.presets import load_activities

_OTHER = HOST_ACTIVITIES.index("other")


def build_gap_activities(
    gaps: pl.DataFrame,
    *,
    iterations: pl.DataFrame,
    named_jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Measure the activities of the launching thread in each gap.

    At each moment the first of these counts: the innermost call that waits or copies; the innermost range; another call of
    `presets/activities/calls.toml`. Where the thread has none of them, ranges of other threads in the report that launch no batch count,
    as those of the scheduler of an engine.

    Args:
        gaps: end_ns, gap_ns (null: none) and thread_key.
        iterations: `RANGES` of batches, in which the host launches.
        named_jobs: `NAMED_JOBS`; ranges whose role is in `HOST_ACTIVITIES` count.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`; empty unless recorded.

    Returns:
        `HOST_ACTIVITY_COLUMNS`, row by row: ns whose sum is the gap; null without one.
    """
    has_gap = (gaps["gap_ns"].is_not_null() & gaps["thread_key"].is_not_null()).to_numpy()
    rows = np.flatnonzero(has_gap)
    begin = numbers(gaps["end_ns"])[rows]
    until, thread = begin + numbers(gaps["gap_ns"])[rows], numbers(gaps["thread_key"])[rows]
    ranges = _list_ranges(iterations, named_jobs)
    patterns = load_activities()
    inside = pl.concat(
        [
            _list_calls(api_calls, thread, patterns["inside"]),
            _list_calls(os_calls, thread, patterns["system"]),
        ]
    )
    outside = _list_calls(api_calls, thread, patterns["outside"])
    gap, time, length = _split_gaps(begin, until, [ranges, inside, outside])
    of_thread = thread[gap]
    activity = np.full(len(gap), -1)
    for intervals in (inside, ranges, outside):
        activity = np.where(activity < 0, _find_activities(of_thread, time, intervals), activity)
    launching = gaps["thread_key"].drop_nulls().unique()
    anywhere = ranges.filter(~pl.col("thread_key").is_in(launching.implode())).with_columns(
        thread_key=pl.lit(0, pl.Int64)
    )
    activity = np.where(activity < 0, _find_activities(np.zeros_like(of_thread), time, anywhere), activity)
    activity = np.where(activity < 0, _OTHER, activity)
    total = np.zeros((len(gaps), len(HOST_ACTIVITIES)), dtype=np.int64)
    np.add.at(total, (rows[gap], activity), length)
    return pl.DataFrame(
        [
            as_numbers(name, total[:, at]).set(pl.Series(~has_gap), None)
            for at, name in enumerate(HOST_ACTIVITY_COLUMNS)
        ]
    )


def _list_ranges(iterations: pl.DataFrame, named_jobs: pl.DataFrame) -> pl.DataFrame:
    """List the ranges that are activities: thread_key, start_ns, end_ns, activity (index); jobs after iterations."""
    jobs = named_jobs.filter(pl.col("role").is_in(HOST_ACTIVITIES)).select(
        "thread_key", "end_thread_key", "start_ns", "end_ns", "role"
    )
    both = pl.concat([iterations.with_columns(role=pl.lit("launching")).select(jobs.columns), jobs])
    activity = pl.col("role").replace_strict(
        HOST_ACTIVITIES, range(len(HOST_ACTIVITIES)), return_dtype=pl.Int64
    )
    return both.filter(pl.col("end_thread_key").is_null()).select(
        "thread_key", "start_ns", "end_ns", activity=activity
    )


def _list_calls(api_calls: pl.DataFrame, thread: Int64s, patterns: dict[str, str]) -> pl.DataFrame:
    """List the calls of some threads that are activities: thread_key, start_ns, end_ns, activity (index)."""
    own = api_calls.filter(pl.col("thread_key").is_in(list_distinct(thread).tolist()))
    activity = np.full(len(own), -1)
    for name, pattern in patterns.items():
        activity[(activity < 0) & is_named(own["name"], pattern)] = HOST_ACTIVITIES.index(name)
    return (
        own.select("thread_key", "start_ns", "end_ns")
        .with_columns(activity=pl.Series(activity))
        .filter(pl.col("activity") >= 0)
    )


def _split_gaps(begin: Int64s, until: Int64s, intervals: list[pl.DataFrame]) -> tuple[Int64s, Int64s, Int64s]:
    """Split gaps at the starts and ends of intervals: index of the gap, start and length of each piece."""
    edges = [numbers(frame[name]) for frame in intervals for name in ("start_ns", "end_ns")]
    edge = np.sort(np.concatenate(edges))  # of equal ones each makes a piece without length
    first, last = np.searchsorted(edge, begin, side="right"), np.searchsorted(edge, until)
    last = np.maximum(first, last)
    gap = np.concatenate([np.arange(len(begin)), np.repeat(np.arange(len(begin)), last - first)])
    time = np.concatenate([begin, edge[expand_windows(first, last)]])
    order = np.lexsort((time, gap))
    gap, time = gap[order], time[order]
    is_last = np.append(gap[1:] != gap[:-1], True)[: len(gap)]
    ends = np.where(is_last, until[gap], np.append(time[1:], 0)[: len(gap)])
    return gap, time, ends - time


def _find_activities(owner: Int64s, time: Int64s, intervals: pl.DataFrame) -> Int64s:
    """Find the activity of the innermost interval of the owner around each moment; -1 without one."""
    at = find_innermost(
        owner,
        time,
        interval_owner=numbers(intervals["thread_key"]),
        start=numbers(intervals["start_ns"]),
        end=numbers(intervals["end_ns"]),
    )
    return np.append(numbers(intervals["activity"]), -1)[at]
