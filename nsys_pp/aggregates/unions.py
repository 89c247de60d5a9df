"""Coverage of time windows by intervals: length of their union, or sum of their lengths.

Both are differences of sums before a moment t, computed from two sorted arrays and their running sums:

    sum of min(end, t) - start  =  sum of (t - start), where start < t  -  sum of (t - end), where end < t
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Int64s


class Union(Struct, frozen=True, kw_only=True):
    """Disjoint intervals `[start, end)`, ascending; none touches the next."""

    start: Int64s
    end: Int64s

    def __or__(self, other: Union) -> Union:
        """Unite two unions."""
        return unite(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def within(self, first: Int64s, last: Int64s) -> Int64s:
        """Return the covered length of each window `[first, last)`."""
        return _sum_within(self.start, self.end, first, last)

    def overlap_within(self, other: Union, first: Int64s, last: Int64s) -> Int64s:
        """Return the length of the intersection within each window: |A| + |B| - |A or B|."""
        either = (self | other).within(first, last)
        return self.within(first, last) + other.within(first, last) - either


def unite(start: Int64s, end: Int64s) -> Union:
    """Unite intervals that overlap or touch.

    Args:
        start: Any order.
        end: Ends of the same intervals; not before the start.

    Returns:
        Their union; empty intervals are dropped.

    >>> unite(np.array([7, 0, 2, 5]), np.array([9, 3, 5, 5]))
    Union(start=array([0, 7]), end=array([5, 9]))
    """
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    if (start >= end).any():
        is_some = start < end
        start, end = start[is_some], end[is_some]
    reach = np.maximum.accumulate(end)
    is_first = np.append(True, start[1:] > reach[:-1])[: len(start)]
    is_last = np.append(is_first[1:], True)[: len(start)]
    return Union(start=start[is_first], end=reach[is_last])


def sum_within(start: Int64s, end: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Add up the lengths of intervals, in any order, within each window `[first, last)`; overlaps count twice.

    >>> sum_within(np.array([0, 2]), np.array([4, 9]), np.array([0, 3]), np.array([3, 5]))
    array([4, 3])
    """
    return _sum_within(np.sort(start), np.sort(end), first, last)


def count_within(start: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Count the starts (in any order) within each window `[first, last)`."""
    in_order = np.sort(start)
    return np.searchsorted(in_order, last) - np.searchsorted(in_order, first)


def _sum_within(start: Int64s, end: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Add up lengths as `sum_within`; starts and ends are sorted separately."""
    return (
        _sum_before(start, last)
        - _sum_before(end, last)
        - _sum_before(start, first)
        + _sum_before(end, first)
    )


def _sum_before(times: Int64s, until: Int64s) -> Int64s:
    """Add up `until - time` over the times before each `until`.

    Sums may overflow Int64; they wrap around, so differences within Int64 are still exact.
    """
    count = np.searchsorted(times, until)
    sums = np.append(np.int64(0), np.cumsum(times))
    return count * until - sums[count]
