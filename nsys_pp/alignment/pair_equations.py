"""Dense normal equations of a fit of few clocks, from the pairs of members of each operation.

An operation ties its members to their weighted mean, so its part of the equations is an outer product over its members. Most
operations have few: a message has two. The entries of their pairs are added one by one. Those of operations with many
members are the product of a matrix with a row per operation, which costs as much as all unknowns in pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nsys_pp.alignment.layout import Observations
from nsys_pp.arrays.lever_sums import ProductSums, sum_levers
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s

_PAIRS = 1 << 20  # listed pairs of members at most; operations beyond these are part of the product
_UNKNOWNS_PER_MEMBER = 10  # of an operation whose pairs cost less than a row of the product
_ROWS = 1 << 18  # entries of the product's matrix at a time, so that it stays in the cache


class PairEquations:
    """Normal equations of the same observations for any weights, with the ends of operations eliminated.

    Args:
        observed: The observations, one or more.
        machine: Machine of each clock.
        machines: Number of machines.
    """

    def __init__(self, observed: Observations, machine: Int64s, machines: int) -> None:
        self._observed, self._machine, self._machines = observed, machine, machines
        self._order = np.argsort(observed.operation, kind="stable")
        operation = observed.operation[self._order]
        self._count = np.bincount(operation)
        stop = np.cumsum(self._count)
        size = len(machine) + machines
        is_small = self._count * _UNKNOWNS_PER_MEMBER <= max(size, 2 * _UNKNOWNS_PER_MEMBER)
        is_small &= np.cumsum(np.where(is_small, self._count**2, 0)) <= _PAIRS
        small = np.flatnonzero(is_small[operation])
        first = stop - self._count
        second_member = self._order[expand_windows(first[operation[small]], stop[operation[small]])]
        first_member = np.repeat(self._order[small], self._count[operation[small]])
        clocks = len(machine)
        pair = observed.clock[first_member] * clocks + observed.clock[second_member]
        self._products = ProductSums(
            first_member, second_member, pair, rows=len(observed.y), entries=clocks * clocks
        )
        self._large = np.flatnonzero(~is_small)
        self._first = first

    def build(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Build the equations.

        Args:
            weights: Weight of each observation, more than 0.

        Returns:
            Matrix and right side, by the offset of each clock, then the drift of each machine; and the weight of each operation.
        """
        observed, clocks, machines = self._observed, len(self._machine), self._machines
        total = observed.sum_weights(weights)
        share = weights / total[observed.operation]
        mean = np.bincount(observed.operation, share * observed.y)
        apart = weights * (observed.y - mean[observed.operation])
        own = sum_levers(observed.clock, weights, observed.x, apart, self._machine, machines)
        matrix = self._build_pairs(weights, share)
        matrix += 0.0  # no entry is -0, as if all others were added to it
        clock, drift = np.arange(clocks), np.arange(clocks, clocks + machines)
        matrix[clock, clock] += own.weight
        matrix[clock, clocks + self._machine] += own.lever
        matrix[clocks + self._machine, clock] += own.lever
        matrix[drift, drift] += own.square
        self._subtract_large(matrix, weights, total)
        right = np.concatenate([own.value, own.moment])
        return matrix, np.asarray(-right, dtype=np.float64), total

    def _build_pairs(self, weights: Floats, share: Floats) -> Floats:
        """Build the entries of the pairs of members."""
        clocks = len(self._machine)
        offset, shared, drift = (
            sums.reshape(clocks, clocks) for sums in self._products.sum(weights, share, self._observed.x)
        )
        member = np.zeros((clocks, self._machines))
        member[np.arange(clocks), self._machine] = 1.0
        half = shared @ member  # of an offset and a drift
        return np.asarray(np.block([[offset, half], [half.T, member.T @ drift @ member]]), dtype=np.float64)

    def _subtract_large(self, matrix: Floats, weights: Floats, total: Floats) -> None:
        """Subtract the part of operations with many members, some at a time."""
        observed, clocks, size = self._observed, len(self._machine), len(matrix)
        step = max(_ROWS // size, 1)
        for start in range(0, len(self._large), step):
            chosen = self._large[start : start + step]
            rows = self._order[expand_windows(self._first[chosen], (self._first + self._count)[chosen])]
            at = np.repeat(np.arange(len(chosen)), self._count[chosen]) * size
            clock, w = observed.clock[rows], weights[rows]
            entries = len(chosen) * size
            sums: Any = np.bincount(at + clock, w, entries)
            sums += np.bincount(at + clocks + self._machine[clock], w * observed.x[rows], entries)
            sums = sums.reshape(len(chosen), size)
            matrix -= sums.T @ (sums / total[chosen][:, np.newaxis])
