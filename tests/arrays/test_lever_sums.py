"""Weighted sums by number, in both ways, against plain loops in order of the rows: to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.lever_sums import ProductSums, sum_levers
from tests.arrays.ways import use_numpy


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_sums_are_those_of_plain_loops(seed: int, is_compiled: bool) -> None:
    random = np.random.default_rng(seed)
    count, numbers, groups = random.integers(0, 60), int(random.integers(1, 9)), int(random.integers(1, 4))
    number, group = np.sort(random.integers(0, numbers, count)), random.integers(0, groups, numbers)
    weights, share, x, values = random.normal(0, 1e3, (4, count))
    first, second = (
        random.integers(0, count, 3 * count) if count else np.zeros(0, np.int64) for _ in range(2)
    )
    entry = random.integers(0, numbers, len(first))
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            use_numpy(patch)
        found = sum_levers(number, weights, x, values, group, groups)
        pairs = ProductSums(first, second, entry, rows=int(count), entries=numbers).sum(weights, share, x)
    sums, of_groups, products = np.zeros((3, numbers)), np.zeros((2, groups)), np.zeros((3, numbers))
    for row, own in enumerate(number):
        lever = weights[row] * x[row]
        sums[:, own] += (weights[row], lever, values[row])
        of_groups[:, group[own]] += (lever * x[row], values[row] * x[row])
    for one, other, at in zip(first, second, entry, strict=True):
        value = -weights[one] * share[other]
        products[:, at] += (value, value * x[other], value * x[one] * x[other])
    assert [found.weight.tolist(), found.lever.tolist(), found.value.tolist()] == sums.tolist()
    assert [found.square.tolist(), found.moment.tolist()] == of_groups.tolist()
    assert [column.tolist() for column in pairs] == products.tolist()


def test_wrong_rows_do_not_reach_it() -> None:
    row, one, two = np.zeros(1, dtype=np.int64), np.ones(1), np.ones(2)
    for number, values, group, groups in ((row + 1, one, row, 1), (row - 1, one, row, 1), (row, one, row, 0)):
        with pytest.raises(IndexError):
            sum_levers(number, one, one, values, group, groups)
    with pytest.raises(ValueError, match="columns of different lengths"):
        sum_levers(row, one, one, two, row, 1)
    for first, second, entry in ((row + 1, row, row), (row, row - 1, row), (row, row, row + 1)):
        with pytest.raises(IndexError):
            ProductSums(first, second, entry, rows=1, entries=1)
    with pytest.raises(ValueError, match="columns of different lengths"):
        ProductSums(row, row, row, rows=1, entries=1).sum(one, one, two)
