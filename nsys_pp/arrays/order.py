"""Order of rows by several columns, as one sort of integers."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s

_HALF_OF_INT64 = 1 << 62


def combine_keys(group: Int64s, values: Int64s) -> Int64s:
    """Combine groups and values into numbers that sort by group, then value; equal where both are equal.

    Values with too large a span are replaced by their ranks.

    Args:
        group: Not negative.
        values: Any integers.

    >>> combine_keys(np.array([1, 0, 1]), np.array([5, 9, 3]))
    array([9, 6, 7])
    """
    if not len(group):
        return np.zeros(0, np.int64)
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(group.max()) + 1) >= _HALF_OF_INT64:
        distinct, rank = np.unique(values, return_inverse=True)
        return group * len(distinct) + rank
    return group * span + (values - least)


def order_rows(group: Int64s, values: Int64s) -> Int64s:
    """Sort rows by group, then value, stable: `np.lexsort((values, group))`.

    One sort of mostly sorted numbers needs a tenth of the time.

    >>> order_rows(np.array([1, 0, 1]), np.array([5, 9, 3]))
    array([1, 2, 0])
    """
    return np.argsort(combine_keys(group, values), kind="stable")
