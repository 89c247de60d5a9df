"""Order of rows, against the definition in plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.order import combine_keys, order_rows, order_unsorted_rows, sort_stable
from tests.arrays.grouped_rows import ROWS, columns


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_combined_keys_sort_by_group_and_value(rows: list[tuple[int, int]]) -> None:
    keys = combine_keys(*columns(rows)).tolist()
    for row, key in zip(rows, keys, strict=True):
        for other_row, other_key in zip(rows, keys, strict=True):
            assert (row < other_row) == (key < other_key)


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_rows_are_ordered_by_group_and_value_stably(rows: list[tuple[int, int]]) -> None:
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    assert order_rows(*columns(rows)).tolist() == expected
    assert order_unsorted_rows(*columns(rows)).tolist() == expected


@given(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 2.0, 1e300, float("inf")]), max_size=300))
@settings(deadline=None, max_examples=100)
def test_equal_numbers_stay_in_order(values: list[float]) -> None:
    expected = np.argsort(np.array(values), kind="stable").tolist()
    assert sort_stable(np.array(values)).tolist() == expected
