"""Entries of the normal equations of a fit of many clocks, in blocks of unknowns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_pp.alignment.layout import Layout, Observations
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s

Int32s = npt.NDArray[np.int32]

_CHUNK = 1 << 15  # observations whose pairs are listed at a time
_LARGE = 64  # members of an operation that is part of a product of dense matrices


class Blocks:
    """Entries of the equations without the means and without the grounded unknowns, by column of blocks.

    Attributes:
        pattern: Mask of the blocks that have entries.
    """

    def __init__(self, observed: Observations, layout: Layout, weights: Floats, own_weight: Floats) -> None:
        clocks = len(layout.machine)
        self._bounds, self._grounded = layout.bounds, layout.position[layout.grounded]
        self._observed, self._weights = observed, weights
        self._offset = layout.position[observed.clock]
        self._drift = layout.position[clocks + layout.machine[observed.clock]]
        count = np.bincount(observed.operation)
        self._total = np.bincount(observed.operation, weights)
        self._share = weights / self._total[observed.operation]
        self._block = (np.searchsorted(layout.bounds, self._offset, side="right") - 1).astype(np.uint16)
        members = np.zeros((len(layout.bounds) - 1, len(count)), dtype=np.float32)
        members[self._block, observed.operation] = 1.0
        self.pattern: Bools = (members @ members.T > 0) | np.eye(len(members), dtype=bool)
        is_large = (count > _LARGE)[observed.operation]
        self._large = self._build_large(np.flatnonzero(is_large))
        self._own_weight = np.empty(len(own_weight))
        self._own_weight[layout.position] = own_weight
        self._pairs = self._list_pairs(np.flatnonzero(~is_large))

    def fill_panel(self, column: int, rows: Int64s) -> Floats:
        """Build a column of blocks at some rows, ascending unknowns."""
        first, stop = self._bounds[column : column + 2].tolist()
        width = stop - first
        panel = np.zeros((len(rows), width))
        entries = panel.reshape(-1)
        for row, unknown, value in self._list_entries(column):
            at = np.searchsorted(rows, row) * width + unknown - first
            entries += np.bincount(at, value, len(entries))
        entries[: width * width : width + 1] += self._own_weight[
            first:stop
        ]  # the block's own rows are the first
        if len(self._large):
            panel -= self._large[:, rows].T @ self._large[:, first:stop]
        panel[np.isin(rows, self._grounded)] = 0.0
        own = self._grounded[(self._grounded >= first) & (self._grounded < stop)] - first
        panel[:, own] = 0.0
        panel[own, own] = 1.0
        return panel

    def _list_entries(self, column: int) -> list[tuple[Int64s, Int64s, Floats]]:
        """List entries of observations and of pairs of members, on and below a diagonal block: row, column and value of each."""
        offset, drift, weights, x = self._offset, self._drift, self._weights, self._observed.x
        own = np.flatnonzero(self._block == column)
        one, other, bounds = self._pairs
        pairs = slice(*bounds[column : column + 2])
        entries: list[tuple[Int64s, Int64s, Floats]] = []
        for a, b, w in (
            (own, own, weights[own]),
            (one[pairs], other[pairs], -weights[one[pairs]] * self._share[other[pairs]]),
        ):
            entries += [
                (offset[a], offset[b], w), (offset[a], drift[b], w * x[b]),
                (drift[a], offset[b], w * x[a]), (drift[a], drift[b], w * x[a] * x[b]),
            ]  # fmt: skip
        return entries

    def _list_pairs(self, rows: Int64s) -> tuple[Int32s, Int32s, Int64s]:
        """List the pairs of members of operations on and below diagonal blocks, and the first pair of each column of blocks."""
        rows = rows[np.argsort(self._observed.operation[rows], kind="stable")]
        operation = self._observed.operation[rows]
        low, high = (np.searchsorted(operation, operation, side=side) for side in ("left", "right"))
        pairs: list[tuple[Int32s, Int32s]] = [(np.zeros(0, dtype=np.int32),) * 2]
        for first in range(0, len(rows), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            first_row = rows[chunk][np.repeat(np.arange(len(rows[chunk])), (high - low)[chunk])]
            second_row = rows[expand_windows(low[chunk], high[chunk])]
            is_below = self._block[first_row] >= self._block[second_row]
            pairs.append((first_row[is_below].astype(np.int32), second_row[is_below].astype(np.int32)))
        one = np.concatenate([left for left, _ in pairs])
        other = np.concatenate([right for _, right in pairs])
        order = np.argsort(self._block[other], kind="stable")
        bounds = np.searchsorted(self._block[other][order], np.arange(len(self._bounds))).astype(np.int64)
        return one[order], other[order], bounds

    def _build_large(self, rows: Int64s) -> Floats:
        """Build the weights of the unknowns in the means of large operations, by the root of their total: a row each."""
        numbers, row = np.unique(self._observed.operation[rows], return_inverse=True)
        size = int(self._bounds[-1])
        large = np.zeros((len(numbers), size))
        w = self._weights[rows] / np.sqrt(self._total[self._observed.operation[rows]])
        np.add.at(large, (row, self._offset[rows]), w)
        np.add.at(large, (row, self._drift[rows]), w * self._observed.x[rows])
        return large
