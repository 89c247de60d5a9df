"""Innermost interval around a moment."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Int64s


def find_innermost(
    owner: Int64s, time: Int64s, *, interval_owner: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """Find the innermost interval `[start, end)` of the same owner around each moment.

    The innermost interval starts last; among equal starts it ends first; among equal intervals it is the later row.
    Intervals may cross.

    Args:
        owner: Owner of each moment: any integer.
        time: ns.
        interval_owner: Owner of each interval.
        start: ns.
        end: ns.

    Returns:
        Row of an interval per moment, -1 without any.

    >>> find_innermost(np.array([7, 7, 8]), np.array([5, 9, 5]),
    ...     interval_owner=np.array([7, 7]), start=np.array([0, 5]), end=np.array([20, 6]))
    array([ 1,  0, -1])
    """
    innermost = np.full(len(owner), -1, dtype=np.int64)
    if not len(owner):
        return innermost
    # The bounds of intervals cut the time of each owner into numbered pieces, fewer than moments; an interval has
    # the pieces numbered [first, last), all of its owner.
    owners, bounds = list_distinct(owner), list_distinct(np.concatenate([start, end]))
    width = len(bounds) + 1
    number = np.searchsorted(owners, owner) * width + np.searchsorted(bounds, time, side="right")
    owner_index = np.minimum(np.searchsorted(owners, interval_owner), len(owners) - 1)
    rows = np.flatnonzero((owners[owner_index] == interval_owner) & (start < end))
    base = owner_index[rows] * width
    first = base + np.searchsorted(bounds, start[rows], side="right")
    last = base + np.searchsorted(bounds, end[rows], side="right")
    order = np.lexsort((-end[rows], start[rows], first))
    nearest = np.searchsorted(first[order], number, side="right") - 1
    reaching = _find_reaching(last[order], nearest, number)
    innermost[reaching >= 0] = rows[order[reaching[reaching >= 0]]]
    return innermost


def _find_reaching(last: Int64s, at: Int64s, number: Int64s) -> Int64s:
    """Return the nearest row at or before each row `at` with `last > number`; -1 without any.

    Blocks of 2**k rows are skipped at once, the longest first, if their maximum is too small.
    """
    maxima = [last]  # of 1, 2, 4, ... rows that end with a row
    while (size := 1 << (len(maxima) - 1)) < len(last):
        wider = maxima[-1].copy()
        np.maximum(wider[size:], maxima[-1][:-size], out=wider[size:])
        maxima.append(wider)
    at = at.copy()
    for height in range(len(maxima) - 1, -1, -1):
        going = np.flatnonzero(at >= 0)
        passed = going[maxima[height][at[going]] <= number[going]]
        at[passed] -= 1 << height
    return np.maximum(at, -1)
