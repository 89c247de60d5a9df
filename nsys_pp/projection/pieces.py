"""Pieces of a large report: ranges within a window of time, and the calls and launches that can be inside them.

A projection needs some two hundred bytes for each launch and range while it works. Piece by piece, that is memory for one of
them. Ranges that begin in one window and end in another are a piece of their own, with all calls during any of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.projection.waited_calls import Waited, WaitedCalls

_PIECE_ROWS = 1_000_000
_MOST_WINDOWS = 64
_SAMPLED = 4096
_COLUMNS = ["process_key", "thread_key", "start_ns", "end_ns"]
_ACROSS = _MOST_WINDOWS  # number of the piece of ranges across windows


class Piece(Struct, frozen=True, kw_only=True):
    """Rows of a report that are projected together."""

    rows: Int64s  # of RANGES, ascending
    ranges: pl.DataFrame  # RANGES of these rows: process, thread, start and end
    api_calls: pl.DataFrame  # API_CALLS, in order: process, thread, start and end
    launches: pl.DataFrame  # LAUNCHES, at least one, by row of these calls
    waited: Waited | None  # by row of these calls


def is_large(ranges: pl.DataFrame, launches: pl.DataFrame) -> bool:
    """Return whether ranges and launches are projected piece by piece."""
    return len(ranges) > 2 * _PIECE_ROWS and len(launches) > _PIECE_ROWS


def split_pieces(
    ranges: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame, waited: Waited | None
) -> Iterator[Piece]:
    """Split a report into pieces; each range is in one of them, unless no launch can be inside it.

    Args:
        ranges: `RANGES`, by range_id.
        api_calls: `API_CALLS`, any order.
        launches: `LAUNCHES` that count.
        waited: Calls that threads waited for, by all ranges; None: none count.
    """
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    call_start, call_row = api_calls["start_ns"].to_numpy(), launches["call_row"].to_numpy()
    bounds = _choose_bounds(start)
    window = _number_windows(start, bounds)
    is_across = window != _number_windows(end, bounds)
    window[is_across] = _ACROSS
    window_of_call = _number_windows(call_start, bounds)
    window_of_launch = window_of_call[call_row]
    ranges, calls = ranges[_COLUMNS], api_calls[_COLUMNS]
    position = np.zeros(len(calls), dtype=np.uint32)  # of each call in its piece
    for number in range(len(bounds) + 1):
        rows, of_calls = np.flatnonzero(window == number), np.flatnonzero(window_of_call == number)
        of_launches = np.flatnonzero(window_of_launch == number)
        if len(rows) and len(of_launches):
            position[of_calls] = np.arange(len(of_calls), dtype=np.uint32)
            is_chosen = window_of_call == number
            yield _cut(ranges, rows, calls, of_calls, launches, of_launches, position, is_chosen, waited)
    rows = np.flatnonzero(is_across)
    del window, window_of_call, window_of_launch
    is_chosen = _is_during_any(call_start, start[rows], end[rows])
    of_calls, of_launches = np.flatnonzero(is_chosen), np.flatnonzero(is_chosen[call_row])
    if len(rows) and len(of_launches):
        position[of_calls] = np.arange(len(of_calls), dtype=np.uint32)
        yield _cut(ranges, rows, calls, of_calls, launches, of_launches, position, is_chosen, waited)


def _choose_bounds(start: Int64s) -> Int64s:
    """Choose the times between windows so that about as many ranges begin in each."""
    sample = np.sort(start[:: max(1, len(start) // _SAMPLED)])
    count = min(_MOST_WINDOWS, -(-len(start) // _PIECE_ROWS))
    return list_distinct(sample[np.arange(1, count) * len(sample) // count])


def _number_windows(times: Int64s, bounds: Int64s) -> NDArray[np.uint8]:
    """Number the window of each time: the bounds at or before it; a pass for each, which numpy does at once."""
    number = np.zeros(len(times), dtype=np.uint8)
    for bound in bounds:
        number += times >= bound
    return number


def _is_during_any(times: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Return the mask of times within any of some intervals, both ends included."""
    if not len(start):
        return np.zeros(len(times), dtype=np.bool_)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.searchsorted(start, times, side="right") - 1
    is_during: Bools = (before >= 0) & (times <= reach[np.maximum(before, 0)])
    return is_during


def _cut(
    ranges: pl.DataFrame,
    rows: Int64s,
    calls: pl.DataFrame,
    of_calls: Int64s,
    launches: pl.DataFrame,
    of_launches: Int64s,
    position: NDArray[np.uint32],
    is_chosen: Bools,
    waited: Waited | None,
) -> Piece:
    """Cut a piece from the positions and the mask of its calls."""
    of_piece = _gather(launches, of_launches)
    call_row = pl.Series("call_row", position[of_piece["call_row"].to_numpy()])
    of_piece.replace_column(of_piece.get_column_index("call_row"), call_row)
    return Piece(
        rows=rows,
        ranges=_gather(ranges, rows),
        api_calls=_gather(calls, of_calls),
        launches=of_piece,
        waited=None if waited is None else _choose_waited(waited, position, is_chosen),
    )


def _choose_waited(waited: Waited, position: NDArray[np.uint32], is_chosen: Bools) -> Waited:
    """Keep the chosen calls, by their positions."""
    both = []
    for calls in (waited.certain, waited.possible):
        kept = is_chosen[calls.call_row]
        call_row = position[calls.call_row[kept]].astype(np.int64)
        both.append(WaitedCalls(thread=calls.thread[kept], call_row=call_row))
    return Waited(certain=both[0], possible=both[1])


def _gather(frame: pl.DataFrame, rows: Int64s) -> pl.DataFrame:
    """Gather rows, without a copy if they are contiguous."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return frame.slice(int(rows[0]), len(rows))
    return frame[rows]
