"""Longest gaps between compute segments, and the activities of the host in them.

Activities are the ranges and calls of a thread, each without the time of those inside it.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    find_distinct,
    gather,
    has_value,
    index_rows,
    join_rows,
    keep_rows,
    numbers,
    pack,
    select_rows,
)
from nsys_pp.arrays.intervals import find_parents
from nsys_pp.arrays.launch_calls import gather_calls
from nsys_pp.arrays.names import list_names
from nsys_pp.arrays.search import (
    expand_windows,
    find_last,
    find_pairs,
    number_keys,
    running_maximum,
    sort_rows,
)
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import NAME, build_schema, conform
from nsys_pp.frames.training import GAPS
from nsys_pp.training.kernels import Segments
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import EMITTED_SUFFIX

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
        `ACTIVITIES`, names with no time of their own left out. The times of an interval do not exceed its
        length. Empty in, empty out.
    """
    rows = np.flatnonzero(np.isin(numbers(items["thread_key"]), numbers(intervals["thread_key"])))
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
    # `ACTIVITIES`; `row`: of each time, in the names
    first_of, name = find_distinct(numbers(names, null=-1)[row])
    first, number = number_keys(pack(interval, name))
    sums = np.zeros(len(first), dtype=np.int64)
    np.add.at(sums, number, times)
    kept = np.flatnonzero(sums > 0)
    interval, name, sums = interval[first][kept], name[first][kept], sums[kept]
    columns = {"interval": interval, "time_ns": sums, "name": names[row[first_of]][name]}
    order = ["interval", "time_ns", pl.col("name").cast(pl.String)]
    return conform(pl.DataFrame(columns).sort(order, descending=[False, True, False]), ACTIVITIES)


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
    # started inside: the items after the last one that began before the interval, up to the last before its
    # end
    before = find_last(thread, since, items.thread, items.start, is_before=True)
    last = find_last(thread, until, items.thread, items.start, is_before=True)
    first = np.where(before < 0, np.searchsorted(items.thread, thread), before + 1)
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


_PER_DEVICE, _PER_STEP = 50, 3
_PER_GAP = 3  # names of each kind of activity


def find_longest_gaps(
    segments: Segments,
    *,
    ops: LaunchedOps,
    ranges: pl.DataFrame,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Find the longest gaps before compute segments, after the one before, or the first operation.

    Also those after the last segment, until the last operation has ended. Each of the others has the
    activities of the thread that launched the next kernel.

    Args:
        segments: Compute segments.
        ops: Operations of the report.
        ranges: `RANGES`.
        os_calls: `OS_CALLS`.

    Returns:
        `GAPS`: of each device the 50 longest gaps, and the 3 longest before segments of each step; of each
        gap the 3 longest activities of each kind.
    """
    devices, api_calls = ops.devices, ops.api_calls
    last = np.flatnonzero(np.diff(segments.group, append=-1))
    rest = replace(
        select_rows(segments, last),
        start=ops.limits[1][segments.group[last]],
        previous_end=running_maximum(segments.group, segments.end)[last],
    )
    segments = join_rows(segments, rest)
    since = np.maximum(segments.previous_end, ops.limits[0][segments.group])
    row = _select(segments, since)
    keys = (numbers(devices[name])[segments.group[row]] for name in ("process_key", "device_id"))
    row = row[sort_rows(*keys, since[row])]
    call = _find_next_calls(segments, row, ops)
    thread = gather_calls(api_calls["thread_key"], call)
    thread[ops.is_off[segments.group[row]]] = NEVER  # its calls are of another clock
    start, end = since[row], segments.start[row]
    gaps = devices[segments.group[row]].hstack(
        [
            as_numbers("step", segments.step[row]),
            pl.Series("start_ns", start),
            pl.Series("end_ns", end),
            as_numbers("launch_ns", gather_calls(api_calls["start_ns"], call)),
        ]
    )
    known = np.flatnonzero(thread != NEVER)
    intervals = pl.DataFrame({"thread_key": thread[known], "start_ns": start[known], "end_ns": end[known]})
    of_thread = keep_rows(ranges, ~has_value(ranges["end_thread_key"]))
    items = {"range": of_thread, "call": api_calls, "os_call": os_calls}
    named = pl.concat(
        [_label(find_activities(intervals, frame), kind, known) for kind, frame in items.items()]
    )
    distinct = list_names(named["name"])
    stripped = distinct.texts.str.replace(EMITTED_SUFFIX, "").cast(NAME)
    named = named.with_columns(gather(stripped, distinct.row).alias("name"))
    return (
        gaps.with_row_index("gap")
        .join(named, on="gap", how="left", maintain_order="left_right")
        .pipe(conform, GAPS)
    )


def _select(segments: Segments, since: Int64s) -> Int64s:
    """Select the segments after the longest gaps: of each device, and of each step of a device."""
    length = segments.start - since
    after = np.flatnonzero(length > 0)
    gaps = pl.DataFrame(
        {"group": segments.group[after], "step": segments.step[after], "length": length[after]}
    )
    place = pl.col("length").rank("ordinal", descending=True)
    is_selected = (place.over("group") <= _PER_DEVICE) | (place.over("group", "step") <= _PER_STEP)
    return np.asarray(after[gaps.select(is_selected).to_series().to_numpy()])


def _find_next_calls(segments: Segments, row: Int64s, ops: LaunchedOps) -> Int64s:
    """Find the call that launched the first compute kernel of each segment; -1 if unknown or cut."""
    rows = np.flatnonzero(ops.is_compute)
    at = find_pairs(ops.device[rows], ops.start[rows], segments.group[row], segments.start[row])
    return np.asarray(np.append(ops.call, -1)[np.append(rows, -1)[at]])


def _label(activities: pl.DataFrame, kind: str, gap: Int64s) -> pl.DataFrame:
    """Keep the longest activities of each interval, with their kind and the row of their gap."""
    interval = numbers(activities["interval"])
    rank = np.arange(len(interval)) - np.searchsorted(interval, interval)
    longest = index_rows(activities, np.flatnonzero(rank < _PER_GAP))
    rows = gap[numbers(longest["interval"])].astype(np.uint32)
    return longest[["name", "time_ns"]].hstack(
        [
            pl.Series("activity", [kind], dtype=GAPS["activity"]).new_from_index(0, len(rows)),
            pl.Series("gap", rows),
        ]
    )
