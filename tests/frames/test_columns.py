"""Frames of columns are those that polars builds."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.columns import build_frame, select_columns


@given(st.lists(st.sampled_from("abcd"), min_size=1, unique=True), st.lists(st.integers(0, 9)))
def test_frames_of_columns_are_those_of_polars(names: list[str], values: list[int]) -> None:
    columns = [pl.Series(name, values, dtype=pl.Int64) for name in "abcd"]
    frame = build_frame(columns)
    assert frame.equals(pl.DataFrame(columns))
    assert frame.columns == [*"abcd"]
    selected = select_columns(frame, names)
    assert selected.equals(frame[names])
    assert selected.columns == names


def test_columns_have_one_length_and_different_names() -> None:
    for second in (pl.Series("b", [1]), pl.Series("a", [1, 2])):
        with pytest.raises(pl.exceptions.PolarsError):
            build_frame([pl.Series("a", [1, 2]), second])
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        select_columns(pl.DataFrame({"a": [1]}), ["b"])
