"""Columns of arrays are those that polars builds."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import series
from nsys_pp.arrays.series import build_column, gather_frame, gather_values

KINDS = ["int64", "int32", "uint32", "uint8", "float64", "bool", "int16", "uint64", "float32"]


def _views(values: np.ndarray) -> list[np.ndarray]:
    """List arrays in memory of other forms: in order, every second value, backwards, unaligned, of other byte order."""
    unaligned = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(values.dtype)
    return [values, values[::2], values[::-1], unaligned, values.astype(values.dtype.newbyteorder())]


@given(st.lists(st.integers(0, 255)), st.sampled_from(KINDS))
def test_columns_of_arrays_are_those_of_polars(values: list[int], kind: str) -> None:
    for array in _views(np.array(values, kind)):
        built, expected = build_column("a", array), pl.Series("a", array)
        assert built.dtype == expected.dtype
        assert built.equals(expected, check_names=True, null_equal=True)
        assert len(built) == len(array)


@given(st.lists(st.floats()))
def test_nan_is_a_value(values: list[float]) -> None:
    built = build_column("a", np.array(values, np.float64))
    assert built.null_count() == 0
    assert np.array_equal(built.to_numpy(), np.array(values, np.float64), equal_nan=True)


def test_columns_have_the_type_that_is_asked_for() -> None:
    assert build_column("a", np.array([1, 2]), pl.UInt32()).dtype == pl.UInt32
    with pytest.raises(pl.exceptions.PolarsError):
        build_column("a", np.array([-1]), pl.UInt32())


def test_all_constructors_of_polars_are_used() -> None:
    assert len(series._CONSTRUCTORS) == len(series._KINDS)


def test_columns_are_equal_without_constructors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_CONSTRUCTORS", {})
    assert build_column("a", np.array([3, 1])).equals(pl.Series("a", [3, 1]), check_names=True)


@given(st.lists(st.integers(0, 255), min_size=1), st.data(), st.booleans())
def test_gathered_values_are_those_of_polars(values: list[int], data: st.DataObject, is_split: bool) -> None:
    texts = pl.Series("a", [None if value == 7 else str(value) for value in values])
    rows = data.draw(st.lists(st.none() | st.integers(0, len(values) - 1)))
    row = pl.Series(rows, dtype=pl.UInt32)
    for column in (pl.Series("a", values), texts, texts.cast(pl.Categorical())):
        parts = pl.concat([column[:1], column[1:]], rechunk=False) if is_split else column
        gathered = gather_values(parts, row)
        assert (gathered.name, gathered.dtype) == ("a", column.dtype)
        assert gathered.to_list() == [None if at is None else column[at] for at in rows]
        frame = parts.to_frame().with_columns(parts.alias("b"))
        assert gather_frame(frame, row).equals(pl.DataFrame([gathered, gathered.alias("b")]))


def test_rows_beyond_a_column_are_refused() -> None:
    with pytest.raises(pl.exceptions.OutOfBoundsError):
        gather_values(pl.Series([5]), pl.Series([1], dtype=pl.UInt32))


def test_values_are_gathered_by_the_function_below_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert series._has_gather()
    monkeypatch.setattr(series, "_has_gather", lambda: False)
    frame, row = pl.DataFrame({"a": [5, 7]}), pl.Series([1], dtype=pl.UInt32)
    assert gather_values(frame["a"], row).to_list() == gather_frame(frame, row)["a"].to_list() == [7]
