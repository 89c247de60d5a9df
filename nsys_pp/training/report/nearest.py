"""What came last before a moment, and what comes first after it, among things of the same group."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nsys_pp.arrays.types import Int64s


def find_last(
    group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s, *, is_before: bool = False
) -> Int64s:
    """Find the last thing of the same group that is not later; with `is_before`, earlier.

    Args:
        group: Whose last thing is sought, like `time`; few different ones.
        time: Not later than this.
        of_group: Of the things.
        of_time: Ascending within each group.
        is_before: Things of the same time do not count.

    Returns:
        Place of the thing, of equal ones the last; -1 where there is none.

    >>> find_last(np.array([0, 0, 1]), np.array([4, 5, 9]), np.array([0, 1, 0]), np.array([5, 9, 7]))
    array([-1,  0,  1])
    """
    return _find(group, time, of_group, of_time, side="left" if is_before else "right", step=-1)


def find_first(group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s) -> Int64s:
    """Find the first thing of the same group that is not earlier, of equal ones the first; like `find_last`."""
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
    found = np.full(len(group), -1)
    rest = np.arange(len(group))
    while len(rest):
        one = group[rest[0]]
        is_one = group[rest] == one
        asking, rest = rest[is_one], rest[~is_one]
        things = np.flatnonzero(of_group == one)
        at = np.searchsorted(of_time[things], time[asking], side=side) + step
        is_there = (at >= 0) & (at < len(things))
        found[asking[is_there]] = things[at[is_there]]
    return found
