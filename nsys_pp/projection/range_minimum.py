"""Range minimum queries: the minimum of many windows of positions at once."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s

# Windows that hold at most this many values per position in total are read directly.
_DIRECT_READS = 32


def find_minimum(values: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Find the minimum of `values[first:last]` per window.

    Windows that hold few values in total are read directly. Otherwise each is covered by two windows
    of the largest power of two that fits, whose minima are computed by doubling (a sparse table), so
    that work is O((positions + windows) log positions) for any windows.

    Args:
        values: One value per position.
        first: First position of each window.
        last: Position after the last; every window holds at least one.

    >>> find_minimum(np.array([5, 3, 8, 1]), np.array([0, 2, 0]), np.array([2, 3, 4]))
    array([3, 8, 1])
    """
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    size = last - first
    if int(size.sum()) <= _DIRECT_READS * len(values):
        # reduceat also reads the gaps between windows, which are disjoint in order of `first`. Its
        # indices must be below the length: one value is appended.
        order = np.argsort(first, kind="stable")
        bounds = np.empty(2 * len(first), dtype=np.int64)
        bounds[0::2], bounds[1::2] = first[order], last[order]
        direct = np.empty(len(first), dtype=np.int64)
        direct[order] = np.minimum.reduceat(np.append(values, values[-1]), bounds)[0::2]
        return direct
    level_of = np.frexp(size)[1] - 1  # floor(log2(size)): sizes are far below 2**53
    result = np.empty(len(first), dtype=np.int64)
    minima = values
    for level in range(int(level_of.max()) + 1):
        chosen = np.flatnonzero(level_of == level)
        result[chosen] = np.minimum(minima[first[chosen]], minima[last[chosen] - (1 << level)])
        step = 1 << level
        if len(minima) > step:
            minima = np.minimum(minima[:-step], minima[step:])
    return result
