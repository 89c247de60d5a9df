"""Order of rows, against the definition in plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.order import combine_keys, order_rows

NEAR = st.integers(-3, 6)
FAR = st.integers(-(1 << 62), (1 << 62) - 1)  # span too much for one number of group and value
ROWS = st.one_of(
    st.lists(st.tuples(st.integers(0, 3), NEAR), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(NEAR, FAR)), max_size=12),
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


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
    assert order_rows(*columns(rows)).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])
