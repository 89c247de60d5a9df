"""Segments of arrays: windows of positions, and running values within segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nsys_pp.arrays.types import Int64s

_HALF_OF_INT64 = 1 << 62


def running_maximum(segment: Int64s, values: Int64s) -> Int64s:
    """Compute the running maximum of `values` within each segment.

    Values are shifted by segment, so that one running maximum suffices; values with too large a span are replaced by
    their ranks.

    Args:
        segment: Not negative, ascending.
        values: Any integers.

    >>> running_maximum(np.array([0, 0, 0, 4, 4]), np.array([5, 3, 7, 1, 2]))
    array([5, 5, 7, 1, 2])
    """
    if not len(values):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span * (int(segment[-1]) + 1) < _HALF_OF_INT64:
        shift = segment * span - least
        return np.maximum.accumulate(values + shift) - shift
    by_value, rank = np.unique(values, return_inverse=True)
    shift = segment * len(by_value)
    return by_value[np.maximum.accumulate(rank + shift) - shift]


def is_every_row(row: npt.NDArray[np.integer[Any]], count: int) -> bool:
    """Return whether rows are all rows of `count`, in order.

    Args:
        row: Rows, each from 0 to `count` - 1.
        count: Number of rows.

    >>> is_every_row(np.array([0, 1, 2]), 3), is_every_row(np.array([0, 0, 2]), 3)
    (True, False)
    """
    return len(row) == count and bool((row[1:] > row[:-1]).all())


def expand_windows(first: Int64s, last: Int64s) -> Int64s:
    """List the positions of all windows `[first, last)`, one window after the other.

    >>> expand_windows(np.array([4, 0, 9]), np.array([6, 0, 10]))
    array([4, 5, 9])
    """
    count = last - first
    ends = np.cumsum(count)
    shift = np.repeat(first - ends + count, count)
    return shift + np.arange(len(shift))
