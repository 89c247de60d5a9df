"""Nearest events of the same group, by the compiled functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.types import Int64s


def find_nearest(
    times: tuple[Int64s, Int64s],
    events: tuple[Int64s, Int64s],
    *,
    is_first: bool = False,
    is_before: bool = False,
) -> Int64s | None:
    """Find the last event at or before each time, or the first one from it on: as `search.find_last` and `find_first`.

    Args:
        times: Group and time, to search for.
        events: Group and time of each event; times ascend within each group.
        is_first: Find the first event from the time on, not the last one.
        is_before: Of last events: those at the same time do not count.

    Returns:
        Index of the event, -1 without one; None without compiled functions, or if the groups are too many for these.
    """
    core = load_core()
    return None if core is None else _find(core.find_nearest, times, events, int(is_first), int(is_before))


def find_launched(
    times: tuple[Int64s, Int64s, Int64s], events: tuple[Int64s, Int64s, Int64s], *, tries: int
) -> Int64s | None:
    """Find the last event of the same group at or before each time that was launched by another time.

    Args:
        times: Group, time and latest launch, to search for.
        events: Group, time and launch of each event; times ascend within each group.
        tries: Events to try, from the last one on.

    Returns:
        As `find_nearest`.
    """
    core = load_core()
    return None if core is None else _find(core.find_launched, times, events, tries)


def _find(
    find: Callable[..., int], times: tuple[Int64s, ...], events: tuple[Int64s, ...], *options: int
) -> Int64s | None:
    counts = []
    for columns in (times, events):
        (count, *others) = {len(column) for column in columns}
        if others:
            raise ValueError("columns of different lengths")
        counts.append(count)
    found = np.empty(counts[0], dtype=np.int64)
    of_times, of_events = (
        [np.ascontiguousarray(column, dtype=np.int64) for column in columns] for columns in (times, events)
    )
    result = find(counts[0], *of_times, counts[1], *of_events, *options, found)
    if result < 0:
        raise MemoryError("not enough memory")
    return None if result else found
