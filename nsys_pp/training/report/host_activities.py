"""Activities of threads: the ranges and calls of a thread during intervals, each without the time of those inside it."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import gather_rows, keep_rows, numbers
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.search import find_last, find_pairs
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import NAME
from nsys_pp.training.report.inner_jobs import find_parents

ACTIVITIES = build_schema(
    {  # one row per interval and name; by interval, descending time, name
        "interval": pl.UInt32,  # row of the intervals
        "name": NAME,
        "time_ns": pl.Int64,  # inside the interval, without the ranges or calls inside it
    },
    name="ACTIVITIES",
)


def find_activities(intervals: pl.DataFrame, items: pl.DataFrame) -> pl.DataFrame:
    """Find the names of the ranges or calls of threads during intervals.

    Args:
        intervals: thread_key, start_ns, end_ns; any order. They may overlap.
        items: Ranges or calls that nest on each thread: thread_key, start_ns, end_ns, name; any order.

    Returns:
        `ACTIVITIES`, names with no time of their own left out. The times of an interval do not exceed its length. Empty
        in, empty out.
    """
    threads = intervals["thread_key"].unique()
    columns = ["thread_key", "start_ns", "end_ns", "name"]
    own = keep_rows(items[columns], mark_members(numbers(items["thread_key"]), numbers(threads.drop_nulls())))
    thread, start, end = (own[name].to_numpy() for name in columns[:3])
    own = gather_rows(own, columns, np.lexsort((-end, start, thread)))
    parents = find_parents(own, np.ones(len(own), dtype=np.bool_))
    interval, item = _pair(intervals, own, parents)
    since, until = (intervals[name].to_numpy()[interval] for name in ("start_ns", "end_ns"))
    start, end = (own[name].to_numpy()[item] for name in ("start_ns", "end_ns"))
    inside = np.minimum(end, until) - np.maximum(start, since)
    parent = parents[item]
    of_parent = find_pairs(interval, item, interval, parent)
    rows = np.flatnonzero((parent >= 0) & (of_parent >= 0))
    times = inside.copy()
    np.subtract.at(times, of_parent[rows], inside[rows])
    return (
        pl.DataFrame({"interval": interval, "time_ns": times})
        .hstack([own["name"][item]])
        .group_by("interval", "name")
        .agg(pl.col("time_ns").sum())
        .filter(pl.col("time_ns") > 0)
        .sort("interval", -pl.col("time_ns"), pl.col("name").cast(pl.String))
        .pipe(conform, ACTIVITIES)
    )


def _pair(intervals: pl.DataFrame, items: pl.DataFrame, parent: Int64s) -> tuple[Int64s, Int64s]:
    """Pair each interval with the items that overlap it.

    Args:
        intervals: Intervals.
        items: By thread, start and descending end.
        parent: Row of the innermost item around each; -1 without one.
    """
    thread, since, until = (intervals[name].to_numpy() for name in ("thread_key", "start_ns", "end_ns"))
    of_thread, of_start = items["thread_key"].to_numpy(), items["start_ns"].to_numpy()
    end = items["end_ns"].to_numpy()
    # started inside: the items after the last one that began before the interval, up to the last before its end
    before = find_last(thread, since, of_thread, of_start, is_before=True)
    last = find_last(thread, until, of_thread, of_start, is_before=True)
    thread_begin = np.searchsorted(of_thread, thread)
    first = np.where(before < 0, thread_begin, before + 1)
    stop = np.maximum(np.where(last < 0, first, last + 1), first)
    pairs = [(np.repeat(np.arange(len(since)), stop - first), expand_windows(first, stop))]
    # open at its start: the last item before it and those around it
    interval, item = np.flatnonzero(before >= 0), before[before >= 0]
    while len(item):
        is_open = end[item] > since[interval]
        pairs.append((interval[is_open], item[is_open]))
        interval, item = interval[parent[item] >= 0], parent[item][parent[item] >= 0]
    interval, item = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return interval.astype(np.int64), item.astype(np.int64)
