"""Windows of launching calls inside ranges.

In order of (owner, start), the calls inside a range are one window of positions, provided that the calls
of an owner also end in that order. Calls of one thread do, since they follow each other. Among the threads
of a process, a range may end during a call, which then has to be cut out of its window.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import mark_rows, select_rows
from nsys_pp.arrays.search import expand_windows, order_by_owner, order_by_time
from nsys_pp.arrays.types import Bools, Int64s


class OrderedCalls(Struct, frozen=True, kw_only=True):
    """Calls by (owner, start, end); the owner of a call is its thread or its process."""

    rows: Int64s  # of API_CALLS
    owner: Int64s
    start: Int64s
    end: Int64s

    def select(self, is_wanted: Bools) -> OrderedCalls:
        """Return some of the calls, by a mask of the rows of API_CALLS."""
        return self if is_wanted.all() else select_rows(self, np.flatnonzero(is_wanted[self.rows]))


def order_calls(api_calls: pl.DataFrame, scope: str, is_wanted: Bools | None = None) -> OrderedCalls:
    """Sort calls by (owner, start, end).

    Args:
        api_calls: `API_CALLS`, any order.
        scope: "thread" or "process": the owners.
        is_wanted: Mask of the calls to sort; None: all.
    """
    columns = [api_calls[name].to_numpy() for name in (f"{scope}_key", "start_ns", "end_ns")]
    rows = np.arange(len(api_calls)) if is_wanted is None else np.flatnonzero(is_wanted)
    order = rows[order_by_time(*(column[rows] for column in columns))]
    owner, start, end = (column[order] for column in columns)
    return OrderedCalls(rows=order, owner=owner, start=start, end=end)


class Windows(Struct, frozen=True, kw_only=True):
    """Positions of calls inside ranges: for range i, `[first[i], last[i])` without its cut positions.

    `cut_range` and `cut_position` list, sorted by both, the calls in a window that end after the range
    (and so are not inside it).

    An equivalent description by ends: `end_position` is the index of each call in order of (owner, end);
    a call is inside range i exactly when its position is at least `first[i]` and its end position is
    below `last_by_end[i]`.
    """

    first: Int64s
    last: Int64s
    cut_range: Int64s
    cut_position: Int64s
    last_by_end: Int64s
    end_position: Int64s


def find_windows(
    range_owner: Int64s,
    range_start: Int64s,
    range_end: Int64s,
    call_owner: Int64s,
    call_start: Int64s,
    call_end: Int64s,
) -> Windows:
    """Find the calls with `range.start <= call.start and call.end <= range.end` of the same owner.

    Args:
        range_owner: Thread or process of each range; the ranges are in any order.
        range_start: ns.
        range_end: ns.
        call_owner: Thread or process of each call; calls are in order of (owner, start).
        call_start: ns.
        call_end: ns.

    Returns:
        `Windows` over the positions of the calls; an empty window has `first == last`.
    """
    first = np.zeros(len(range_start), dtype=np.int64)
    last, last_by_end = first.copy(), first.copy()
    end_position = np.arange(len(call_start))
    cuts: list[tuple[Int64s, Int64s]] = []
    by_owner = order_by_owner(range_owner)
    owners = call_owner[np.append(True, call_owner[1:] != call_owner[:-1])] if len(call_owner) else call_owner
    bounds = [
        np.searchsorted(column, owners, side=side).tolist()
        for column in (call_owner, range_owner[by_owner])
        for side in ("left", "right")
    ]
    for base, stop, rows_from, rows_to in zip(*bounds, strict=True):
        if rows_from == rows_to:
            continue
        rows = by_owner[rows_from:rows_to]
        starts, ends = call_start[base:stop], call_end[base:stop]
        lo = np.searchsorted(starts, range_start[rows], side="left")
        if (ends[1:] >= ends[:-1]).all():
            hi = np.searchsorted(ends, range_end[rows], side="right")
            last_by_end[rows] = base + hi
        else:
            by_end = np.argsort(ends, kind="stable")
            end_position[base + by_end] = base + np.arange(stop - base)
            ended = np.searchsorted(ends[by_end], range_end[rows], side="right")
            last_by_end[rows] = base + ended
            hi = np.searchsorted(starts, range_end[rows], side="right")
            cut_rows, cut_positions = _find_cuts(starts, ends, range_end[rows], lo, hi, ended)
            cuts.append((rows[cut_rows], cut_positions + base))
        first[rows] = base + lo
        last[rows] = base + np.maximum(lo, hi)
    cut_range = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in cuts)])
    cut_position = np.concatenate([np.zeros(0, np.int64), *(positions for _, positions in cuts)])
    order = np.lexsort((cut_position, cut_range))
    return Windows(
        first=first,
        last=last,
        cut_range=cut_range[order],
        cut_position=cut_position[order],
        last_by_end=last_by_end,
        end_position=end_position,
    )


def _find_cuts(
    starts: Int64s, ends: Int64s, range_end: Int64s, lo: Int64s, hi: Int64s, ended: Int64s
) -> tuple[Int64s, Int64s]:
    """List the (range, position) pairs where a call of the window `[lo, hi)` ends after the range.

    The search covers the window, or the calls that run when the range ends, whichever are fewer: a range
    may enclose a million calls and end while a hundred threads wait in long calls.

    Args:
        starts: Of the calls, ascending.
        ends: Of the calls.
        range_end: Of the ranges.
        lo: Number of calls that start before each range.
        hi: Number of calls that start no later than the range ends.
        ended: Number of calls that end no later than the range.
    """
    running = hi - ended
    is_short = hi - lo <= running
    short = np.flatnonzero(is_short & (hi > lo))
    short_row = np.repeat(short, hi[short] - lo[short])
    short_position = expand_windows(lo[short], hi[short])

    # From the view of a call: it runs at the end of those ranges that end between its start and its end.
    long = np.flatnonzero(~is_short & (running > 0))
    long = long[np.argsort(range_end[long], kind="stable")]
    from_end = np.searchsorted(range_end[long], starts, side="left")
    to_end = np.searchsorted(range_end[long], ends, side="left")
    long_row = long[expand_windows(from_end, to_end)]
    long_position = np.repeat(np.arange(len(starts)), to_end - from_end)

    row = np.concatenate([short_row, long_row])
    position = np.concatenate([short_position, long_position])
    is_cut = (lo[row] <= position) & (ends[position] > range_end[row])
    return row[is_cut], position[is_cut]


def split_windows(windows: Windows) -> tuple[Int64s, Int64s, Int64s]:
    """Split the windows at their cuts into contiguous segments.

    Returns:
        Row of the range, first and last position of every non-empty segment, by range and position.
    """
    if not len(windows.cut_range):
        rows = np.flatnonzero(windows.last > windows.first)
        if len(rows) == len(windows.first):
            return rows, windows.first, windows.last  # without copies
        return rows, windows.first[rows], windows.last[rows]
    rows = np.arange(len(windows.first))
    row = np.concatenate([rows, windows.cut_range])
    first = np.concatenate([windows.first, windows.cut_position + 1])
    order = np.lexsort((first, row))
    row, first = row[order], first[order]
    last = np.empty_like(first)
    # A segment ends at the next cut of its range, or at the end of the window.
    is_final = np.append(row[1:] != row[:-1], True)
    last[is_final] = windows.last
    last[~is_final] = windows.cut_position
    keep = last > first
    return row[keep], first[keep], last[keep]


class CallsInside(Struct, frozen=True, kw_only=True):
    """Launching calls inside a selection of ranges; calls are in order of (owner, start).

    The owner of a call is its thread (scope "thread") or its process ("process").
    """

    scope: str  # "thread" or "process"
    rows: Int64s  # the ranges: rows of RANGES, ascending
    windows: Windows  # of `rows`
    segment_row: Int64s  # contiguous segments of windows: index into `rows`, ascending
    segment_first: Int64s
    segment_last: Int64s
    call_count: int
    owner: Int64s  # number of each call's owner: 0, 1, ... in order of the calls
    position: Int64s  # of the call of each launch
    is_waited: Bools  # mask of calls: of other threads, which the owner waited for
    is_launching: Bools  # mask of the rows of API_CALLS


def find_calls_inside(
    ranges: pl.DataFrame,
    rows: Int64s,
    scope: str,
    api_calls: pl.DataFrame,
    call_row: Int64s,
    *,
    ordered: OrderedCalls | None = None,
    waited_from: int | None = None,
) -> CallsInside:
    """Find the launching calls inside ranges.

    Args:
        ranges: `RANGES`.
        rows: Rows of `ranges` to search, ascending.
        scope: "thread" for calls of the range's thread, "process" for calls of its process.
        api_calls: `API_CALLS`, any order.
        call_row: Row of `api_calls` of each launch.
        ordered: All of `api_calls`, by owners of the scope; None: sorted here, those that launched.
        waited_from: First row of calls of other threads that their `thread_key` waited for; None: no such
            calls.
    """
    is_launching = mark_rows(call_row, len(api_calls))
    calls = order_calls(api_calls, scope, is_launching) if ordered is None else ordered.select(is_launching)
    call = calls.rows
    position = np.empty(len(api_calls), dtype=np.int64)
    position[call] = np.arange(len(call))
    windows = _find_windows(ranges, rows, scope, calls)
    segment_row, segment_first, segment_last = split_windows(windows)
    return CallsInside(
        scope=scope,
        rows=rows,
        windows=windows,
        segment_row=segment_row,
        segment_first=segment_first,
        segment_last=segment_last,
        call_count=len(call),
        owner=np.cumsum(np.diff(calls.owner, prepend=calls.owner[:1]) != 0),
        position=position[call_row],
        is_waited=call >= (len(api_calls) if waited_from is None else waited_from),
        is_launching=is_launching,
    )


def find_without_calls(ranges: pl.DataFrame, calls_inside: CallsInside, api_calls: pl.DataFrame) -> Int64s:
    """Find the ranges without any call inside, launching or not.

    Returns:
        Rows of `ranges`, among those of `calls_inside`, ascending.
    """
    has_launch = mark_rows(calls_inside.segment_row, len(calls_inside.rows))
    without_launch = calls_inside.rows[~has_launch]
    if not len(without_launch) or calls_inside.is_launching.all():
        return without_launch
    others = order_calls(api_calls, calls_inside.scope, ~calls_inside.is_launching)
    windows = _find_windows(ranges, without_launch, calls_inside.scope, others)
    size = windows.last - windows.first
    is_empty: Bools = size == np.bincount(windows.cut_range, minlength=len(size))
    return without_launch[is_empty]


def _find_windows(ranges: pl.DataFrame, rows: Int64s, scope: str, calls: OrderedCalls) -> Windows:
    range_owner, range_start, range_end = (
        ranges[name].to_numpy()[rows] for name in (f"{scope}_key", "start_ns", "end_ns")
    )
    return find_windows(range_owner, range_start, range_end, calls.owner, calls.start, calls.end)
