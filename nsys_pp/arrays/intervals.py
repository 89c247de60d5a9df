"""Intervals of owners: their unions, and their overlaps with other intervals of the same owner."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.search import find_first, find_last
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Int64s


class Intervals(Struct, frozen=True, kw_only=True):
    """Half-open intervals, by owner and start; an owner has no two that overlap."""

    owner: Int64s
    start: Int64s
    end: Int64s


class Overlaps(Struct, frozen=True, kw_only=True):
    """Parts of intervals that other ones cover, by row and start."""

    row: Int64s  # of the intervals
    other: Int64s  # row of the other one
    start: Int64s
    end: Int64s


def unite(owner: Int64s, start: Int64s, end: Int64s) -> Intervals:
    """Unite the intervals of each owner; neighbours that touch are joined, and empty ones are left out.

    >>> united = unite(np.array([5, 5, 5, 2]), np.array([0, 3, 9, 4]), np.array([4, 6, 9, 5]))
    >>> united.owner.tolist(), united.start.tolist(), united.end.tolist()
    ([2, 5], [4, 0], [5, 6])
    """
    kept = np.flatnonzero(start < end)
    kept = kept[np.lexsort((start[kept], owner[kept]))]
    owner, start, end = owner[kept], start[kept], end[kept]
    is_other = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    reach = running_maximum(np.cumsum(is_other), end)
    begins = is_other.copy()
    begins[1:] |= start[1:] > reach[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(owner))[: len(first)] - 1
    return Intervals(owner=owner[first], start=start[first], end=reach[last])


def subtract(start: Int64s, end: Int64s, overlaps: Overlaps) -> Overlaps:
    """Find the rest of the intervals that others overlap: before, between and after their parts; `other` is -1.

    >>> others = unite(np.array([5, 5]), np.array([0, 8]), np.array([4, 9]))
    >>> owner, start, end = np.array([5, 7]), np.array([2, 0]), np.array([20, 9])
    >>> rest = subtract(start, end, intersect(owner, start, end, others))
    >>> rest.row.tolist(), rest.start.tolist(), rest.end.tolist()
    ([0, 0], [4, 9], [8, 20])
    """
    rows = np.unique(overlaps.row)
    row = np.append(overlaps.row, rows)
    begins, stops = np.append(overlaps.end, start[rows]), np.append(overlaps.start, end[rows])
    begins, stops = (times[np.lexsort((times, row))] for times in (begins, stops))
    row, kept = np.sort(row), begins < stops
    return Overlaps(row=row[kept], other=np.full(int(kept.sum()), -1), start=begins[kept], end=stops[kept])


def intersect(owner: Int64s, start: Int64s, end: Int64s, others: Intervals) -> Overlaps:
    """Find the parts of intervals that other ones of the same owner cover.

    >>> others = unite(np.array([5, 5]), np.array([0, 8]), np.array([4, 9]))
    >>> found = intersect(np.array([5, 7]), np.array([2, 0]), np.array([20, 9]), others)
    >>> found.row.tolist(), found.start.tolist(), found.end.tolist()
    ([0, 0], [2, 8], [4, 9])
    """
    first = find_first(owner, start + 1, others.owner, others.end)  # ends after the start
    last = find_last(owner, end, others.owner, others.start, is_before=True)
    stop = np.where((first < 0) | (last < 0), first, np.maximum(last + 1, first))
    row = np.repeat(np.arange(len(owner)), stop - first)
    other = expand_windows(first, stop)
    return Overlaps(
        row=row,
        other=other,
        start=np.maximum(start[row], others.start[other]),
        end=np.minimum(end[row], others.end[other]),
    )
