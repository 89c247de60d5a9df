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


def divide_groups(group: Int64s, weight: Int64s, most: int) -> list[slice]:
    """Divide rows into blocks of whole groups, each with a weight of about `most`, or one group.

    Args:
        group: Rows of a group follow each other.
        weight: Of each row, as the memory of what is computed for it.
        most: Greatest weight of a block.

    >>> divide_groups(np.array([0, 0, 1, 2]), np.array([1, 2, 2, 9]), 4)
    [slice(0, 3, None), slice(3, 4, None)]
    """
    if not len(group):
        return []
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    number = np.append(0, np.cumsum(weight))[begins] // most
    edges = begins[np.append(True, number[1:] != number[:-1])].tolist()
    return [slice(*edge) for edge in zip(edges, [*edges[1:], len(group)], strict=True)]
