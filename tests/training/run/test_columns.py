"""Look-ups in arrays, against their definitions in plain loops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.training.run.columns import (
    as_whole_numbers,
    combine_keys,
    find_latest,
    find_pairs,
    order_rows,
    whole_numbers,
)

NEAR = st.integers(-3, 6)
FAR = st.integers(-(1 << 62), (1 << 62) - 1)  # span too much to put groups side by side
ROWS = st.one_of(
    st.lists(st.tuples(st.integers(0, 3), NEAR), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(NEAR, FAR)), max_size=12),
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_lines_are_in_the_order_of_group_and_value(rows: list[tuple[int, int]]) -> None:
    line = combine_keys(*columns(rows)).tolist()
    for one, place in zip(rows, line, strict=True):
        for other, beside in zip(rows, line, strict=True):
            assert (one < other) == (place < beside)


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_rows_are_ordered_by_group_and_value_and_as_they_come(rows: list[tuple[int, int]]) -> None:
    assert order_rows(*columns(rows)).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


@given(ROWS, ROWS)
@settings(deadline=None, max_examples=100)
def test_pairs_are_found_where_they_first_stand(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    wanted = [*wanted, *rows[::2]]
    expected = [rows.index(one) if one in rows else -1 for one in wanted]
    assert find_pairs(*columns(rows), *columns(wanted)).tolist() == expected


@given(ROWS, ROWS)
@settings(deadline=None, max_examples=100)
def test_the_latest_time_of_a_group_is_at_or_before_the_wanted_one(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    wanted = [*wanted, *rows[::2]]
    expected = []
    for group, time in wanted:
        before = [(other, row) for row, (own, other) in enumerate(rows) if own == group and other <= time]
        expected.append(max(before)[1] if before else -1)
    assert find_latest(*columns(rows), *columns(wanted)).tolist() == expected


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt32])
def test_whole_numbers_and_back(dtype: type[pl.DataType]) -> None:
    for values in ([], [3, None, 0], [None, None], [5]):
        series = pl.Series(values, dtype=dtype)
        assert whole_numbers(series).tolist() == [-1 if value is None else value for value in values]
        assert as_whole_numbers(whole_numbers(series), dtype).equals(series, check_dtypes=True)
