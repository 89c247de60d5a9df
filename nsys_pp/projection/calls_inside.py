"""API calls inside ranges, for the calls of a thread or of a process."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.segments import is_every_row
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.projection.call_order import OrderedCalls, order_calls
from nsys_pp.projection.windows import Windows, find_windows, split_windows


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
    owner_first: Int64s  # first call of each owner
    position: Int64s  # of the call of each launch
    is_waited: Bools  # mask of calls: of other threads, which the owner waited for
    is_launching: Bools  # mask of the rows of API_CALLS

    def number_owners(self) -> Int64s:
        """Return the number of each call's owner: 0, 1, ... in order of the calls."""
        sizes = np.diff(self.owner_first, append=self.call_count)
        return np.repeat(np.arange(len(sizes)), sizes)


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
        waited_from: First row of calls of other threads that their `thread_key` waited for; None: no such calls.
    """
    is_launching = np.zeros(len(api_calls), dtype=bool)
    is_launching[call_row] = True
    calls = order_calls(api_calls, scope, is_launching) if ordered is None else ordered.select(is_launching)
    call = calls.rows
    position = np.empty(len(api_calls), dtype=np.int64)
    position[call] = np.arange(len(call))
    windows = _find_windows(ranges, rows, scope, calls)
    segment_row, segment_first, segment_last = split_windows(windows)
    if len(segment_row) == len(rows) == len(ranges) and is_every_row(segment_row, len(rows)):
        segment_row = rows  # one array for both
    return CallsInside(
        scope=scope,
        rows=rows,
        windows=windows,
        segment_row=segment_row,
        segment_first=segment_first,
        segment_last=segment_last,
        call_count=len(call),
        owner_first=np.flatnonzero(np.append(True, calls.owner[1:] != calls.owner[:-1])[: len(call)]),
        position=position[call_row],
        is_waited=call >= (len(api_calls) if waited_from is None else waited_from),
        is_launching=is_launching,
    )


def find_without_calls(ranges: pl.DataFrame, calls_inside: CallsInside, api_calls: pl.DataFrame) -> Int64s:
    """Find the ranges without any call inside, launching or not.

    Returns:
        Rows of `ranges`, among those of `calls_inside`, ascending.
    """
    without_launching_call = np.ones(len(calls_inside.rows), dtype=bool)
    without_launching_call[calls_inside.segment_row] = False
    without_launch: Int64s = calls_inside.rows[without_launching_call]
    if not len(without_launch) or calls_inside.is_launching.all():
        return without_launch
    others = order_calls(api_calls, calls_inside.scope, ~calls_inside.is_launching)
    windows = _find_windows(ranges, without_launch, calls_inside.scope, others)
    size = windows.last - windows.first
    is_empty: Bools = size == np.bincount(windows.cut_range, minlength=len(size))
    return without_launch[is_empty]


def _find_windows(ranges: pl.DataFrame, rows: Int64s, scope: str, calls: OrderedCalls) -> Windows:
    columns = [ranges[name].to_numpy() for name in (f"{scope}_key", "start_ns", "end_ns")]
    if len(rows) < len(ranges):
        columns = [column[rows] for column in columns]
    range_owner, range_start, range_end = columns
    return find_windows(range_owner, range_start, range_end, calls.owner, calls.start, calls.end)
