"""Sort orders by owner (a thread, a process) and time.

Reports nearly always hold their events in order of time. Grouping the rows by owner then suffices; a full
sort is needed only where it does not.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Int64s


def order_by_time(owner: Int64s, time: Int64s, second_key: Int64s) -> Int64s:
    """Return the stable order of rows by (owner, time, second key).

    >>> order_by_time(np.array([7, 3, 7, 3]), np.array([0, 5, 1, 4]), np.array([0, 0, 0, 0]))
    array([3, 1, 0, 2])
    """
    order = order_by_owner(owner)
    owners, times, second_keys = owner[order], time[order], second_key[order]
    is_ascending = (times[1:] > times[:-1]) | (
        (times[1:] == times[:-1]) & (second_keys[1:] >= second_keys[:-1])
    )
    if (is_ascending | (owners[1:] != owners[:-1])).all():
        return order
    return np.lexsort((second_key, time, owner))


def order_by_owner(owner: Int64s) -> Int64s:
    """Return the stable order of rows by owner.

    >>> order_by_owner(np.array([7, 3, 7, 3]))
    array([1, 3, 0, 2])
    """
    if (owner[1:] >= owner[:-1]).all():
        return np.arange(len(owner))
    owners = list_distinct(owner[np.append(True, owner[1:] != owner[:-1])])
    number = np.searchsorted(owners, owner)
    if len(owners) <= 1 << 16:
        number = number.astype(np.uint16)  # numpy sorts 16-bit integers by radix
    return np.argsort(number, kind="stable")
