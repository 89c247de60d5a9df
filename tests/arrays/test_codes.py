"""Copies of codes are those that polars lists."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import codes
from nsys_pp.arrays.codes import copy_codes, query_codes
from nsys_pp.arrays.columns import are_among, numbers

COUNTS = [1, 2, 127, 128, 129, 254, 255, 256, 257, 65_535, 65_536, 65_537]
PARTS = st.lists(st.lists(st.integers(0, 1 << 20), max_size=5), min_size=1, max_size=3)


def _build(parts: list[list[int]], count: int, *, is_enum: bool) -> pl.Series:
    """Build a column in chunks, of which the first begins after another row."""
    words = list(map(str, range(count)))
    dtype = pl.Enum(words) if is_enum else pl.Categorical()
    chunks = [pl.Series([words[-1], *(words[at % count] for at in part)], dtype=dtype)[1:] for part in parts]
    return pl.concat(chunks, rechunk=False)


def test_polars_has_the_address_of_codes() -> None:
    assert codes._has_address()


@given(PARTS, st.sampled_from(COUNTS), st.booleans())
def test_copies_are_the_codes_of_polars(parts: list[list[int]], count: int, is_enum: bool) -> None:
    column = _build(parts, count, is_enum=is_enum)
    expected = query_codes(column).to_numpy()
    copied = copy_codes(column, column.dtype)
    if not len(column):
        assert copied is None
        return
    assert copied is not None
    assert copied.dtype == expected.dtype
    assert copied.tolist() == expected.tolist()
    assert query_codes(column).to_list() == copied.tolist()


@given(PARTS, st.sampled_from(COUNTS[:6]), st.booleans())
def test_numbers_are_equal_without_addresses(parts: list[list[int]], count: int, is_enum: bool) -> None:
    column = _build(parts, count, is_enum=is_enum)
    words = [column[0]] if is_enum and len(column) else []
    found = numbers(column), are_among(column, words) if words else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes, "_has_address", lambda: False)
        assert np.array_equal(numbers(column), found[0])
        assert np.array_equal(are_among(column, words) if words else [], found[1])


def test_columns_with_nulls_of_many_rows_or_of_other_types_are_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codes, "_MOST_BYTES", 2)
    dtype = pl.Enum(["a"])
    for values in (["a", None], ["a"] * 3):
        column = pl.Series(values, dtype=dtype)
        assert copy_codes(column, dtype) is None
        assert numbers(column, null=-1).tolist() == [-1 if value is None else 0 for value in values]
    assert copy_codes(pl.Series(["a"]), pl.String()) is None
    narrow = pl.Series(["a", "b"], dtype=pl.Categorical(pl.Categories("narrow", physical=pl.UInt8)))
    assert copy_codes(narrow, narrow.dtype) is None
    assert copy_codes(narrow, pl.Categorical()) is None  # its codes are shorter
    assert numbers(narrow).tolist() == [0, 1]


def test_codes_are_listed_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AttributeError

    monkeypatch.setattr(codes, "_copy", fail)
    assert not codes._has_address.__wrapped__()
