"""Counts of names between positions of a long sequence of launches."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s

_LEAST_BLOCK = 4096  # launches


class NameCounts:
    """Counts of names before every block of launches, so that few segments are counted without reading the launches in them.

    Args:
        name: Index of the name of each launch.
        names: Number of names.
    """

    def __init__(self, name: Int64s, names: int) -> None:
        self._name, self._names = name, names
        self._block = max(_LEAST_BLOCK, names)  # so that there are at most as many counts as launches
        self._before: Int64s | None = None  # before each block (rows), by name (columns)

    def count(self, begin: Int64s) -> Int64s:
        """Count the launches of each segment (rows) by name (columns).

        Args:
            begin: Positions, ascending, at least one; a segment ends where the next one begins.
        """
        if len(begin) * self._block > begin[-1] - begin[0]:
            segment = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
            return self._count(segment, self._name[begin[0] : begin[-1]], len(begin) - 1)
        if self._before is None:
            self._before = self._count_blocks()
        block = begin // self._block
        rest = begin - block * self._block  # launches of the block before the position
        position = np.arange(len(begin)).repeat(rest)
        before = self._before[block]
        before += self._count(position, self._name[expand_windows(begin - rest, begin)], len(begin))
        return np.diff(before, axis=0)

    def _count_blocks(self) -> Int64s:
        blocks = len(self._name) // self._block + 1
        block = np.arange(blocks).repeat(self._block)[: len(self._name)]
        counts = self._count(block, self._name, blocks)
        return np.cumsum(counts, axis=0) - counts

    def _count(self, row: Int64s, name: Int64s, rows: int) -> Int64s:
        counts = np.bincount(row * self._names + name, minlength=rows * self._names)
        return counts.reshape(rows, self._names)
