"""Planes of bytes: every column comes back, whatever its values."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nsys_pp.arrays.packed_frames import PlaneCode, as_words, choose_planes, restore_planes, size_of

LEAST, MOST = -(2**63), 2**63 - 1
INTEGERS = st.integers(-3, 3) | st.integers(0, 10**6) | st.sampled_from([LEAST, MOST, -1, 0, 2**62])
checked = settings(deadline=None, max_examples=200)


def measure(data: bytes) -> int:
    return len(zlib.compress(data, 1))


@checked
@given(
    rows=st.lists(st.tuples(INTEGERS, INTEGERS, st.integers(0, 4)), max_size=60),
    repeats=st.sampled_from([1, 200]),
)
def test_a_column_comes_back(rows: list[tuple[int, int, int]], repeats: int) -> None:
    values, base, key = (
        as_words(np.array([row[i] for row in rows] * repeats, dtype=np.int64)) for i in range(3)
    )
    code, planes = choose_planes(values, measure=measure, bases=[(7, base)], keys=[(3, key)])
    assert len(planes) == size_of(code)
    other = {7: base, 3: key, -1: None}[code.other]
    assert restore_planes(code, memoryview(planes + b"more"), other).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("values", "more", "method", "size"),
    [
        ([], {}, "plain", 0),
        ([0] * 9, {}, "plain", 0),
        ([255] * 9, {}, "plain", 9),
        ([10**15 + i**3 for i in range(99)], {}, "delta", 8 * 99),
        ([-1, 3, 0, -2] * 99, {}, "signed", 396),
        ([10**12 + i * i for i in range(99)], {"bases": [10**12 + i * i for i in range(99)]}, "minus", 0),
        ([10**15 + (i * i % 7) for i in range(99)], {"keys": [i * i % 7 for i in range(99)]}, "map", 8 * 5),
    ],
)
def test_the_smallest_planes_are_chosen(
    values: list[int], more: dict[str, list[int]], method: str, size: int
) -> None:
    columns: Any = {name: [(0, as_words(np.array(column)))] for name, column in more.items()}
    code, planes = choose_planes(as_words(np.array(values, dtype=np.int64)), measure=measure, **columns)
    assert code.method == method
    assert len(planes) <= size


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64, np.uint64, np.float64])
def test_words_of_all_types(dtype: Any) -> None:
    values = np.array([0, 1, 1, 0], dtype=dtype)
    words = as_words(values)
    assert words.dtype == np.uint64
    back = words.view(np.float64) if values.dtype.kind == "f" else words.astype(dtype)
    assert back.tolist() == values.tolist()


def test_encodings_that_contradict_the_columns_are_refused() -> None:
    code, planes = choose_planes(as_words(np.arange(9) ** 3), measure=measure)
    for wrong in (
        replace(code, method="minus"),
        replace(code, method="map"),
        replace(code, length=10**6),
        replace(code, width=code.width + 1),
    ):
        with pytest.raises(ValueError, match=r"column|short"):
            restore_planes(wrong, memoryview(planes))
    table = replace(code, method="map")
    with pytest.raises(ValueError, match="not in the table"):
        restore_planes(table, memoryview(planes), as_words(np.array([9])))
    with pytest.raises(ValueError, match="differ in length"):
        restore_planes(replace(code, method="minus"), memoryview(planes), as_words(np.array([9])))
    for width, length in ((9, 1), (-1, 1), (1, -1)):
        with pytest.raises(ValueError, match="invalid"):
            size_of(PlaneCode("plain", width, length))
