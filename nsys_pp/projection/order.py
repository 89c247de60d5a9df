"""Rows of each owner (a thread, a process) together, in order of time.

Reports hold their events in order of time nearly always, so that it is enough to put the rows of
each owner together; only where that does not do are they sorted.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s


def order_by_time(owner: Int64s, time: Int64s, then: Int64s) -> Int64s:
    """Order rows by (owner, time, then); equal ones stay in order.

    >>> order_by_time(np.array([7, 3, 7, 3]), np.array([0, 5, 1, 4]), np.array([0, 0, 0, 0]))
    array([3, 1, 0, 2])
    """
    order = order_by_owner(owner)
    owners, times, thens = owner[order], time[order], then[order]
    is_late = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (thens[1:] >= thens[:-1]))
    if (is_late | (owners[1:] != owners[:-1])).all():
        return order
    return np.lexsort((then, time, owner))


def order_by_owner(owner: Int64s) -> Int64s:
    """Order rows by owner; those of one owner stay in order.

    >>> order_by_owner(np.array([7, 3, 7, 3]))
    array([1, 3, 0, 2])
    """
    if (owner[1:] >= owner[:-1]).all():
        return np.arange(len(owner))
    owners = np.unique(owner[np.append(True, owner[1:] != owner[:-1])])
    number = np.searchsorted(owners, owner)
    if len(owners) <= 1 << 16:
        number = number.astype(np.uint16)  # numpy sorts 16-bit integers by radix
    return np.argsort(number, kind="stable")
