"""Nearest earlier and later events of the same group."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nsys_pp.arrays.types import Int64s


def find_last(
    group: Int64s, time: Int64s, of_group: Int64s, of_time: Int64s, *, is_before: bool = False
) -> Int64s:
    """Find the last event of the same group at or before each time.

    Args:
        group: Group of each time; few distinct ones.
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
    while len(rest):
        current = group[rest[0]]
        is_current = group[rest] == current
        rows, rest = rest[is_current], rest[~is_current]
        events = np.flatnonzero(of_group == current)
        at = np.searchsorted(of_time[events], time[rows], side=side) + step
        exists = (at >= 0) & (at < len(events))
        nearest[rows[exists]] = events[at[exists]]
    return nearest
