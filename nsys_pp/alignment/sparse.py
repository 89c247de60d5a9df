"""Symmetric, positive definite, sparse matrices in dense blocks: Cholesky factors, solutions, and blocks of the inverse.

A matrix is cut into blocks of some hundred unknowns; only blocks with entries are stored, in one panel per column of blocks, so that
all arithmetic is products of dense matrices. A chain of unknowns costs as much as its length; where each is related to
many others at random, all blocks fill, and it costs as much as a dense factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Bools, Floats, Int64s


class Factor(Struct, frozen=True, kw_only=True):
    """A Cholesky factor.

    Attributes:
        bounds: First unknown of each block, and the number of unknowns.
        rows: Of each column of blocks, the unknowns of its blocks below the diagonal, ascending.
        panels: Of each column of blocks, its rows of the factor at these unknowns.
        inverse: Of each column of blocks, the inverse of its diagonal block of the factor.
    """

    bounds: Int64s
    rows: list[Int64s]
    panels: list[Floats]
    inverse: list[Floats]

    def solve(self, right: Floats) -> Floats:
        """Return the solution for a right side, or for each column of a matrix."""
        x = np.array(right, dtype=np.float64)
        spans = [slice(*self.bounds[block : block + 2]) for block in range(len(self.rows))]
        for span, rows, panel, inverse in zip(spans, self.rows, self.panels, self.inverse, strict=True):
            x[span] = inverse @ x[span]
            x[rows] -= panel @ x[span]
        for block in reversed(range(len(spans))):
            span = spans[block]
            x[span] = self.inverse[block].T @ (x[span] - self.panels[block].T @ x[self.rows[block]])
        return x

    def invert_diagonal(self) -> Iterator[Floats]:
        """Compute the diagonal blocks of the inverse, one after the other; no more of the inverse is held than some columns."""
        for block in range(len(self.rows)):
            first, stop = self.bounds[block : block + 2].tolist()
            columns = np.zeros((int(self.bounds[-1]) - first, stop - first))
            columns[: stop - first] = np.eye(stop - first)
            reached = np.zeros(len(self.rows), dtype=bool)
            reached[block] = True
            for other in range(block, len(self.rows)):
                if not reached[other]:
                    continue
                span = slice(int(self.bounds[other]) - first, int(self.bounds[other + 1]) - first)
                columns[span] = self.inverse[other] @ columns[span]
                rows = self.rows[other]
                if len(rows):
                    _subtract(columns, rows - first, self.panels[other] @ columns[span])
                    reached[np.searchsorted(self.bounds, rows, side="right") - 1] = True
            yield columns.T @ columns


def cut_blocks(sizes: Int64s, target: int) -> Int64s:
    """Cut groups of neighbouring unknowns into blocks: groups stay whole, and a block has the ends of those in the same multiple of `target`.

    Returns:
        First unknown of each block, and the number of unknowns.

    >>> cut_blocks(np.array([2, 2, 2, 5]), 4).tolist()
    [0, 4, 6, 11]
    """
    ends = np.cumsum(sizes)
    block = np.maximum(ends - 1, 0) // target
    last = np.append(np.flatnonzero(np.diff(block)), len(sizes) - 1)
    return np.append(0, ends[last])


def find_fill(pattern: Bools) -> list[Int64s]:
    """List the blocks below the diagonal that each column of the factor has.

    Args:
        pattern: Mask of the blocks that have entries; symmetric.
    """
    fill: list[set[int]] = [
        set((column + 1 + np.flatnonzero(row[column + 1 :])).tolist()) for column, row in enumerate(pattern)
    ]
    for below in fill:
        if below:
            parent = min(below)
            fill[parent] |= below - {parent}
    return [np.array(sorted(below), dtype=np.int64) for below in fill]


def factorise(bounds: Int64s, pattern: Bools, fill_panel: Callable[[int, Int64s], Floats]) -> Factor:
    """Factorise a matrix.

    Args:
        bounds: First unknown of each block, and the number of unknowns.
        pattern: Mask of the blocks that have entries; symmetric.
        fill_panel: Function of a block and of unknowns: the columns of the block in the matrix, at these rows. The array becomes
            part of the factor.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not positive definite.
    """
    factor = Factor(bounds=bounds, rows=[], panels=[], inverse=[])
    left_of: list[list[int]] = [[] for _ in range(len(bounds) - 1)]  # columns with a block in each row
    for column, below in enumerate(find_fill(pattern)):
        first, stop = bounds[column : column + 2].tolist()
        rows = np.concatenate(
            [np.arange(first, stop), *(np.arange(*bounds[block : block + 2]) for block in below.tolist())]
        )
        panel = fill_panel(column, rows)
        for left in left_of[column]:
            low, high = np.searchsorted(factor.rows[left], (first, stop))
            update = factor.panels[left][low:] @ factor.panels[left][low:high].T
            at = np.searchsorted(rows, factor.rows[left][low:])
            _subtract(panel, at, update)
        size = stop - first
        lower = np.linalg.inv(np.linalg.cholesky(panel[:size]))
        factor.inverse.append(lower)
        factor.panels.append(panel[size:] @ lower.T)
        factor.rows.append(rows[size:])
        for block in below.tolist():
            left_of[block].append(column)
    return factor


def _subtract(array: Floats, rows: Int64s, values: Floats) -> None:
    """Subtract values from ascending rows of an array."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:  # without gaps: in place
        array[rows[0] : rows[-1] + 1] -= values
    elif len(rows):
        array[rows] -= values
