"""Activities of threads: the ranges and calls of a thread during intervals, each without the time of those inside it."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, numbers, pack
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.nesting import find_parents
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_last, find_pairs, number_keys
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import NAME

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
    is_own = mark_members(numbers(items["thread_key"]), numbers(intervals["thread_key"]))
    rows = np.flatnonzero(is_own)
    if not len(rows):
        return ACTIVITIES.to_frame()
    thread, start, end = (numbers(items[name])[rows] for name in ("thread_key", "start_ns", "end_ns"))
    order = sort_rows(thread, start, -end)
    own = _Items(rows[order], thread[order], start[order], end[order])
    parents, _ = find_parents(own.thread, own.start, own.end)
    thread, since, until = (numbers(intervals[name]) for name in ("thread_key", "start_ns", "end_ns"))
    interval, item = _pair(thread, since, until, own, parents)
    times = np.minimum(own.end[item], until[interval]) - np.maximum(own.start[item], since[interval])
    inside, parent = times.copy(), parents[item]
    of_parent = find_pairs(interval, item, interval, parent)
    is_inner = (parent >= 0) & (of_parent >= 0)
    np.subtract.at(times, of_parent[is_inner], inside[is_inner])
    return _sum_names(interval, own.row[item], times, items["name"])


def _sum_names(interval: Int64s, row: Int64s, times: Int64s, names: pl.Series) -> pl.DataFrame:
    """Sum times by interval and name (`ACTIVITIES`); `row`: of each time, in the names."""
    first_of, name = find_distinct(numbers(names, null=-1)[row])
    first, number = number_keys(pack(interval, name))
    sums = np.zeros(len(first), dtype=np.int64)
    np.add.at(sums, number, times)
    kept = np.flatnonzero(sums > 0)
    interval, name, sums = interval[first][kept], name[first][kept], sums[kept]
    own = names[row[first_of]]
    texts = own.to_list()
    rank = np.empty(len(texts), dtype=np.int64)
    rank[sorted(range(len(texts)), key=lambda at: (texts[at] is not None, texts[at]))] = np.arange(len(texts))
    order = sort_rows(interval, -sums, rank[name])
    columns = {"interval": interval[order], "time_ns": sums[order]}
    named = own[name[order]].alias("name")
    return conform(pl.DataFrame(columns).hstack([named]), ACTIVITIES)


class _Items(Struct, frozen=True):
    """Items of some threads, by thread, start and descending end."""

    row: Int64s
    thread: Int64s
    start: Int64s
    end: Int64s


def _pair(
    thread: Int64s, since: Int64s, until: Int64s, items: _Items, parent: Int64s
) -> tuple[Int64s, Int64s]:
    """Pair each interval with the items that overlap it.

    Args:
        thread: Of each interval.
        since: Starts of the intervals.
        until: Ends of the intervals.
        items: Items.
        parent: Row of the innermost item around each; -1 without one.
    """
    # started inside: the items after the last one that began before the interval, up to the last before its end
    before = find_last(thread, since, items.thread, items.start, is_before=True)
    last = find_last(thread, until, items.thread, items.start, is_before=True)
    thread_begin = np.searchsorted(items.thread, thread)
    first = np.where(before < 0, thread_begin, before + 1)
    stop = np.maximum(np.where(last < 0, first, last + 1), first)
    pairs = [(np.repeat(np.arange(len(since)), stop - first), expand_windows(first, stop))]
    # open at its start: the last item before it and those around it
    interval, item = np.flatnonzero(before >= 0), before[before >= 0]
    while len(item):
        is_open = items.end[item] > since[interval]
        pairs.append((interval[is_open], item[is_open]))
        interval, item = interval[parent[item] >= 0], parent[item][parent[item] >= 0]
    interval, item = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return interval.astype(np.int64), item.astype(np.int64)
