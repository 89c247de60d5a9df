"""Insertion of rows, against a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.insertion import insert_rows


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_rows_are_inserted_before_others(seed: int, is_compiled: bool) -> None:
    random = np.random.default_rng(seed)
    count, added = random.integers(0, 20, 2)
    own, other = random.integers(0, 9, count), random.integers(10, 19, added)
    at = np.sort(random.integers(0, count + 1, added))
    columns = [own, own / 2, own.astype(np.int32)], [other, other / 2, other.astype(np.int32)]
    joined = insert_rows(load_core() if is_compiled else None, columns[0], at, columns[1])
    expected: list[int] = []
    for row in range(count + 1):
        expected += other[at == row].tolist() + own[row : row + 1].tolist()
    assert [column.tolist() for column in joined] == [expected, [one / 2 for one in expected], expected]
    assert [column.dtype for column in joined] == [column.dtype for column in columns[0]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": np.array([3])},
        {"at": np.array([-1])},
        {"others": [np.arange(2)]},
        {"columns": [np.arange(2), np.arange(1)]},
        {"at": np.array([2, 1]), "others": [np.arange(2)]},
    ],
)
def test_wrong_rows_do_not_reach_it(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"columns": [np.arange(2)], "at": np.array([1]), "others": [np.arange(1)]}
    assert insert_rows(load_core(), **arguments)[0].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"columns of different lengths|a row that is not there"):
        insert_rows(load_core(), **arguments | wrong)
