"""Masks of nulls are those of polars' queries."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import nulls
from nsys_pp.arrays.codes import query_codes, split_codes
from nsys_pp.arrays.columns import NEVER, as_numbers, gather, has_value, numbers, split_nulls
from nsys_pp.arrays.nulls import mark_nulls, set_nulls, split_values, view_values

LEAST = -(1 << 62) + 1
TYPES = [
    pl.Int64,
    pl.Int32,
    pl.UInt64,
    pl.UInt32,
    pl.UInt8,
    pl.Float64,
    pl.Float32,
    pl.Boolean,
    pl.Enum(["0", "1", "2"]),
    pl.Categorical(),
]
PARTS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=9), min_size=1, max_size=3)


def _build(parts: list[list[int | None]], dtype: pl.DataType) -> pl.Series:
    """Build a column in chunks, of which each begins after another row."""
    chunks = [pl.Series([1, *part], dtype=pl.Int64)[1:] for part in parts]
    column = pl.concat(chunks, rechunk=False)
    is_text = isinstance(dtype, pl.Enum | pl.Categorical)
    return (column.cast(pl.String) if is_text else column).cast(dtype)


def test_polars_has_masks() -> None:
    assert nulls.has_masks()


@given(PARTS, st.sampled_from(TYPES))
def test_nulls_are_those_of_polars(parts: list[list[int | None]], dtype: pl.DataType) -> None:
    column = _build(parts, dtype)
    expected = column.is_null().to_list()
    assert has_value(column).tolist() == [not is_null for is_null in expected]
    if column.null_count():
        assert mark_nulls(column).tolist() == expected
    filled = column.drop_nulls()
    if len(filled) and column.null_count():
        is_null = column.is_null()
        emptied = set_nulls(_build([[1] * len(column)], dtype), is_null)
        assert emptied.dtype == column.dtype
        assert emptied.is_null().to_list() == expected


@given(PARTS, st.sampled_from(TYPES[:8]))
def test_values_and_masks_are_those_of_polars(parts: list[list[int | None]], dtype: pl.DataType) -> None:
    column = _build(parts, dtype)
    values, is_null = split_values(column)
    assert (is_null is None) == (column.null_count() == 0)
    assert len(values) == len(column)
    kept = np.ones(len(column), np.bool_) if is_null is None else ~is_null
    assert kept.tolist() == column.is_not_null().to_list()
    assert values[kept].tolist() == column.drop_nulls().to_list()
    found, is_present = split_nulls(column)
    present = np.ones(len(column), np.bool_) if is_present is None else is_present
    assert found[present].tolist() == column.drop_nulls().to_list()
    seen = view_values(column)
    assert seen is None or (column.n_chunks() == 1 and seen[kept].tolist() == column.drop_nulls().to_list())


@given(PARTS, st.sampled_from(TYPES[8:]))
def test_codes_of_columns_with_nulls_are_those_of_polars(
    parts: list[list[int | None]], dtype: pl.DataType
) -> None:
    column = _build(parts, dtype)
    split = split_codes(column, column.dtype)
    if split is not None:
        codes, is_null = split
        expected = query_codes(column)
        assert is_null.tolist() == expected.is_null().to_list()
        assert codes[~is_null].tolist() == expected.drop_nulls().to_list()


@pytest.mark.parametrize("dtype", TYPES[8:])
def test_codes_are_copied_where_some_are_null(dtype: pl.DataType) -> None:
    assert split_codes(_build([[0, None, 2]], dtype)[:2].rechunk(), dtype) is not None


@given(
    st.lists(st.one_of(st.none(), st.integers(LEAST, -LEAST), st.integers(-9, 9))),
    st.sampled_from([pl.Int64, pl.Int32, pl.UInt64]),
    st.sampled_from([NEVER, -1]),
    st.booleans(),
)
def test_numbers_are_equal_with_and_without_masks(
    values: list[int | None], dtype: pl.DataType, null: int, has_masks: bool
) -> None:
    column = pl.Series(values, dtype=pl.Int64).cast(dtype, strict=False)
    expected = [int(null) if value is None else value for value in column.to_list()]
    row = np.array([-1, *range(len(values))])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("nsys_pp.arrays.nulls", "nsys_pp.arrays.columns"):
            patch.setattr(f"{name}.has_masks", lambda: has_masks)
        assert numbers(column, null=null).tolist() == expected
        assert gather(column, row).to_list() == [None, *column.to_list()]
        if null == NEVER and dtype == pl.Int64:
            assert as_numbers("", numbers(column)).to_list() == column.to_list()
        assert has_value(column).tolist() == column.is_not_null().to_list()


def test_masks_are_not_used_where_polars_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AttributeError

    monkeypatch.setattr(nulls, "split_values", fail)
    assert not nulls.has_masks.__wrapped__()
