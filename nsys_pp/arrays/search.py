"""Search for rows: by id, and for the nearest earlier and later events of the same group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.columns import NEVER, find_distinct, numbers, pack
from nsys_pp.arrays.order import combine_keys
from nsys_pp.arrays.types import Int64s

_SPARSEST = 8  # numbers from the least id to the greatest, for each id, in a table
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits of the golden ratio
_SHIFT = np.uint64(29)
_FEW_ROWS = 50_000
_MAX_SCANS = 16  # groups that are scanned one by one; one sort of all is faster for more


def find_first_rows(keys: Int64s) -> Int64s:
    """Find the first row of each distinct key; rows ascend.

    Fast for few keys, as of threads and processes.

    >>> find_first_rows(np.array([7, 3, 7, 9, 3]))
    array([0, 1, 3])
    """
    return np.sort(find_distinct(keys)[0])


def number_rows(columns: Sequence[pl.Series]) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Find the first row of each distinct row of some columns, ascending, and the number of each row among these.

    Rows are compared by a hash, and then checked. Fast for few distinct rows, as of launches of kernels.

    Args:
        columns: Integers; at least one, all of one length.

    >>> first, number = number_rows([pl.Series([7, 3, 7, 7]), pl.Series([1, 1, 1, None])])
    >>> first.tolist(), number.tolist()
    ([0, 1, 3], [0, 1, 0, 2])
    """
    few = (
        [numbers(column) for column in columns] if len(columns[0]) <= _FEW_ROWS else None
    )  # else too much memory
    first, number = number_keys(_hash(len(columns[0]), few or map(numbers, columns)))
    if all(_are_equal(values, first, number) for values in few or map(numbers, columns)):
        return first, number
    return number_keys(pack(*map(numbers, columns)))  # different rows have the same hash


def _hash(count: int, columns: Iterable[Int64s]) -> Int64s:
    """Hash the rows of some columns."""
    keys = np.zeros(count, dtype=np.uint64)
    for values in columns:
        keys *= _MULTIPLIER
        keys += values.view(np.uint64)
        keys ^= keys >> _SHIFT
    return keys.view(np.int64)


def _are_equal(values: Int64s, first: Int64s, number: npt.NDArray[np.uint32]) -> bool:
    """Return whether each row has the value of the first row of its number."""
    return np.array_equal(values[first].take(number), values)


def number_keys(keys: Int64s) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Find the first row of each distinct key, ascending, and the number of each row's key among these.

    Fast for few keys.

    >>> first, number = number_keys(np.array([7, 3, 7, 9, 3]))
    >>> first.tolist(), number.tolist()
    ([0, 1, 3], [0, 1, 0, 2, 1])
    """
    first, rank = find_distinct(keys)
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(len(first), dtype=np.uint32)
    return first[order], number[rank]


def find_rows(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each wanted id among ids, the first of several; -1 without one.

    >>> find_rows(np.array([7, 5, 7]), np.array([5, 6, 7]))
    array([ 1, -1,  0])
    """
    return RowIndex(ids).find(wanted)


class RowIndex:
    """Rows by id, for several searches.

    Args:
        ids: Id of each row.
    """

    def __init__(self, ids: Int64s) -> None:
        self._ids = ids
        self._least = int(ids.min()) if len(ids) else 0
        self._row_of: Int64s | None = None  # a table by id
        span = int(ids.max()) - self._least + 1 if len(ids) else 0
        if span <= _SPARSEST * len(ids):
            self._row_of = np.full(span + 1, -1)
            self._row_of[ids[::-1] - self._least] = np.arange(len(ids))[::-1]  # the last assignment stays
        else:
            self._order = np.argsort(ids, kind="stable")
            self._ordered = ids[self._order]

    def find(self, wanted: Int64s) -> Int64s:
        """Find the row of each wanted id, the first of several; -1 without one."""
        if self._row_of is not None:
            span = len(self._row_of) - 1
            is_within = (wanted >= self._least) & (wanted < self._least + span)
            return self._row_of[np.where(is_within, wanted - self._least, span)]
        at = np.append(self._order, -1)[np.searchsorted(self._ordered, wanted)]
        return np.where(np.append(self._ids, NEVER)[at] == wanted, at, -1)


def find_pairs(group: Int64s, ids: Int64s, wanted_group: Int64s, wanted_id: Int64s) -> Int64s:
    """Find the row of each wanted (group, id), the first of several; -1 without one.

    >>> find_pairs(np.array([0, 0, 1]), np.array([7, 5, 7]), np.array([1, 1]), np.array([7, 5]))
    array([ 2, -1])
    """
    if not len(ids):
        return np.full(len(wanted_id), -1)
    combined = combine_keys(np.append(group, wanted_group), np.append(ids, wanted_id))
    return find_rows(combined[: len(ids)], combined[len(ids) :])


def find_equal_rows(columns: Sequence[Int64s], wanted: Sequence[Int64s]) -> Int64s:
    """Find the row of each wanted row among rows of some columns, the first of several; -1 without one.

    Several times as fast as a join on several columns.

    Args:
        columns: At least one; all of one length.
        wanted: The same columns of the wanted rows.

    >>> find_equal_rows([np.array([7, 5, 7]), np.array([1, 1, 1])], [np.array([7, 5]), np.array([1, 2])])
    array([ 0, -1])
    """
    count = len(columns[0])
    first, number = number_rows(
        [
            pl.Series("", np.append(of_rows, of_wanted))
            for of_rows, of_wanted in zip(columns, wanted, strict=True)
        ]
    )
    row = first[number[count:]]
    return np.where(row < count, row, -1)


def find_last(
    group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s, *, is_before: bool = False
) -> Int64s:
    """Find the last event of the same group at or before each time.

    Args:
        group: Group of each time.
        time: Times to search for.
        of_group: Group of each event.
        of_time: Time of each event, ascending within each group.
        is_before: Events at the same time do not count.

    Returns:
        Index of the event, the last of equal ones; -1 without one.

    >>> find_last(np.array([0, 0, 1]), np.array([4, 5, 9]), np.array([0, 1, 0]), np.array([5, 9, 7]))
    array([-1,  0,  1])
    """
    return _find(group, time, of_group, of_time, side="left" if is_before else "right", step=-1)


def find_first(group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s) -> Int64s:
    """Find the first event of the same group at or after each time; the first of equal ones. Like `find_last`."""
    return _find(group, time, of_group, of_time, side="left", step=0)


def _find(
    group: Int64s,
    time: Int64s,
    of_group: Int64s,
    of_time: Int64s,
    *,
    side: Literal["left", "right"],
    step: int,
) -> Int64s:
    nearest = np.full(len(group), -1)
    rest = np.arange(len(group))
    for _ in range(_MAX_SCANS):
        if not len(rest):
            return nearest
        current = group[rest[0]]
        is_current = group[rest] == current
        rows, rest = rest[is_current], rest[~is_current]
        events = np.flatnonzero(of_group == current)
        at = np.searchsorted(of_time[events], time[rows], side=side) + step
        exists = (at >= 0) & (at < len(events))
        nearest[rows[exists]] = events[at[exists]]
    if len(rest) and len(of_group):
        nearest[rest] = _find_sorted(group[rest], time[rest], of_group, of_time, side=side, step=step)
    return nearest


def _find_sorted(
    group: Int64s,
    time: Int64s,
    of_group: Int64s,
    of_time: Int64s,
    *,
    side: Literal["left", "right"],
    step: int,
) -> Int64s:
    count = len(of_group)
    _, number = find_distinct(np.append(of_group, group))
    combined = combine_keys(number, np.append(of_time, time))
    order = np.argsort(combined[:count], kind="stable")
    at = np.searchsorted(combined[:count], combined[count:], side=side, sorter=order) + step
    row = order[at.clip(0, count - 1)]
    return np.where((at >= 0) & (at < count) & (number[row] == number[count:]), row, -1)
