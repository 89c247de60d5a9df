"""Weighted sums of observations and of pairs of them by number: compiled (`core.c`), or by numpy, to the same last bit.

Rows of one number follow each other in most arrays, so each addition waits for the one before: the compiled functions add several
sums at once.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Floats, Int64s


class LeverSums(Struct, frozen=True, kw_only=True):
    """Sums over observations.

    Attributes:
        weight: Of weights, by number.
        lever: Of weights times x, by number.
        value: Of values, by number.
        square: Of weights times x squared, by group.
        moment: Of values times x, by group.
    """

    weight: Floats
    lever: Floats
    value: Floats
    square: Floats
    moment: Floats


def sum_levers(
    number: Int64s, weights: Floats, x: Floats, values: Floats, group: Int64s, groups: int
) -> LeverSums:
    """Sum observations by number, and by the group of their number.

    Args:
        number: Of each observation.
        weights: Of each observation.
        x: Of each observation.
        values: Of each observation.
        group: Of each number.
        groups: Number of groups.

    Raises:
        IndexError: A number or group is not there.
        ValueError: Columns have different lengths.
    """
    _check(number, len(group), weights, x, values)
    _check(group, groups)
    numbers, core = len(group), load_core()
    if core is None:
        lever, of = weights * x, group[number]
        return LeverSums(
            weight=_sum(number, weights, numbers),
            lever=_sum(number, lever, numbers),
            value=_sum(number, values, numbers),
            square=_sum(of, lever * x, groups),
            moment=_sum(of, values * x, groups),
        )
    sums, of_groups = np.empty((3, numbers)), np.empty((2, groups))
    number, group = (np.ascontiguousarray(column, dtype=np.int64) for column in (number, group))
    weights, x, values = (np.ascontiguousarray(column, dtype=np.float64) for column in (weights, x, values))
    own = (find_address(column) for column in (number, weights, x, values))
    core.sum_levers(
        len(number), *own, numbers, find_address(group), groups, find_address(sums), find_address(of_groups)
    )
    return LeverSums(weight=sums[0], lever=sums[1], value=sums[2], square=of_groups[0], moment=of_groups[1])


class ProductSums:
    """Sums over pairs of observations by entry, for any weights.

    Args:
        first: Row of the first observation of each pair.
        second: Row of the second.
        entry: Of each pair.
        rows: Number of observations.
        entries: Number of entries.

    Raises:
        IndexError: A row or an entry is not there.
        ValueError: Columns have different lengths.
    """

    def __init__(self, first: Int64s, second: Int64s, entry: Int64s, *, rows: int, entries: int) -> None:
        _check(entry, entries, first, second)
        for observations in (first, second):
            _check(observations, rows)
        self._numbers = [np.ascontiguousarray(column, dtype=np.int64) for column in (first, second, entry)]
        self._rows, self._entries = rows, entries

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._numbers[0])

    def sum(self, weights: Floats, share: Floats, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Sum -weight of the first * share of the second; this times x of the second; and times both x.

        Args:
            weights: Of each observation.
            share: Of each observation.
            x: Of each observation.

        Raises:
            ValueError: Columns have different lengths.
        """
        if not len(weights) == len(share) == len(x) == self._rows:
            raise ValueError("columns of different lengths")
        first, second, entry = self._numbers
        core = load_core()
        if core is None:
            value = -weights[first] * share[second]
            products = (value, value * x[second], value * x[first] * x[second])
            offset, shared, drift = (_sum(entry, product, self._entries) for product in products)
            return offset, shared, drift
        sums = np.empty((3, self._entries))
        columns = [np.ascontiguousarray(column, dtype=np.float64) for column in (weights, share, x)]
        addresses = (find_address(column) for column in (*self._numbers, *columns))
        core.sum_products(len(entry), *addresses, self._entries, find_address(sums))
        return sums[0], sums[1], sums[2]


def _sum(number: Int64s, values: Floats, numbers: int) -> Floats:
    return np.asarray(np.bincount(number, values, numbers), dtype=np.float64)


def _check(number: Int64s, limit: int, *columns: Int64s | Floats) -> None:
    """Check that numbers are from 0 to below the limit, and columns as long as they are."""
    if any(len(column) != len(number) for column in columns):
        raise ValueError("columns of different lengths")
    if len(number) and (number.min() < 0 or number.max() >= limit):
        raise IndexError("a number that is out of bounds")
