"""Whose calls count, and which of them lie inside which range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.projection.order import order_by_time
from nsys_pp.projection.windows import Windows, find_windows, split_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Which launching calls lie inside some of the ranges; calls are in order of (owner, start)."""

    scope: str  # "thread" or "process": what owns the calls
    rows: Int64s  # the ranges: rows of RANGES, ascending
    windows: Windows  # of `rows`
    piece_row: Int64s  # pieces of windows without a hole: index into `rows`, ascending
    piece_first: Int64s
    piece_last: Int64s
    call_owner: Int64s  # number of the owner (0, 1, ...) per position
    position: Int64s  # of the call, per launch
    is_launching: Bools  # per row of API_CALLS


def find_inside(
    ranges: pl.DataFrame, rows: Int64s, scope: str, api_calls: pl.DataFrame, call_row: Int64s
) -> Inside:
    """Find the launching calls inside ranges.

    Args:
        ranges: `RANGES`.
        rows: The ranges to look at, ascending.
        scope: "thread" for calls of the range's thread, "process" for those of its process.
        api_calls: `API_CALLS`, any order.
        call_row: The call of each launch.
    """
    owner = f"{scope}_key"
    is_launching = np.zeros(len(api_calls), dtype=bool)
    is_launching[call_row] = True
    launching = np.flatnonzero(is_launching)
    order, calls = _order_calls(api_calls, launching, owner)
    place = np.empty(len(api_calls), dtype=np.int64)
    place[launching[order]] = np.arange(len(order))
    windows = _find_windows(ranges, rows, owner, calls)
    piece_row, piece_first, piece_last = split_windows(windows)
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = calls[0][1:] != calls[0][:-1]
    return Inside(
        scope=scope,
        rows=rows,
        windows=windows,
        piece_row=piece_row,
        piece_first=piece_first,
        piece_last=piece_last,
        call_owner=np.cumsum(begins) - 1,
        position=place[call_row],
        is_launching=is_launching,
    )


def find_without_calls(ranges: pl.DataFrame, inside: Inside, api_calls: pl.DataFrame) -> Int64s:
    """Find the ranges without any call inside, launching or not.

    Returns:
        Rows of `ranges`, among those of `inside`, ascending.
    """
    is_alone = np.ones(len(inside.rows), dtype=bool)
    is_alone[inside.piece_row] = False
    alone: Int64s = inside.rows[is_alone]
    others = np.flatnonzero(~inside.is_launching)
    if not len(alone) or not len(others):
        return alone
    owner = f"{inside.scope}_key"
    windows = _find_windows(ranges, alone, owner, _order_calls(api_calls, others, owner)[1])
    size = windows.last - windows.first
    is_empty: Bools = size == np.bincount(windows.cut_range, minlength=len(size))
    return alone[is_empty]


def _order_calls(
    api_calls: pl.DataFrame, rows: Int64s, owner: str
) -> tuple[Int64s, tuple[Int64s, Int64s, Int64s]]:
    """Order some calls by (owner, start, end); returns the order, and owner, start and end in it."""
    columns = [api_calls[name].to_numpy() for name in (owner, "start_ns", "end_ns")]
    if len(rows) < len(api_calls):
        columns = [column[rows] for column in columns]
    order = order_by_time(*columns)
    owners, starts, ends = (column[order] for column in columns)
    return order, (owners, starts, ends)


def _find_windows(
    ranges: pl.DataFrame, rows: Int64s, owner: str, calls: tuple[Int64s, Int64s, Int64s]
) -> Windows:
    columns = [ranges[name].to_numpy() for name in (owner, "start_ns", "end_ns")]
    if len(rows) < len(ranges):
        columns = [column[rows] for column in columns]
    range_owner, range_start, range_end = columns
    return find_windows(range_owner, range_start, range_end, *calls)
