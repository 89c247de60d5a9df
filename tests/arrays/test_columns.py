"""Columns as arrays and back, against their definition."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.columns import as_numbers, is_among, numbers, pack
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS

values = st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(1 << 60), 1 << 60)))
packed_values = st.one_of(st.integers(-2, 2), st.integers(0, 1 << 60), st.integers(-(1 << 62), 1 << 62))


@settings(deadline=None, max_examples=50)
@given(values)
def test_null_comes_back_as_null(some: list[int | None]) -> None:
    series = pl.Series("step", some, pl.Int64)
    assert as_numbers("step", numbers(series)).to_list() == some


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.integers(0, 9))))
def test_null_is_whatever_number_is_asked_for(some: list[int | None]) -> None:
    series = pl.Series("rank", some, pl.UInt32)
    whole = numbers(series, null=-1)
    assert whole.tolist() == [-1 if one is None else one for one in some]
    assert as_numbers("rank", whole, dtype=pl.UInt32, null=-1).equals(series, check_dtypes=True)


def test_words_have_the_numbers_of_their_places() -> None:
    words = pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["a", "b", "c"]))
    assert numbers(words, null=-1).tolist() == [1, -1, 0, 1]


@given(st.lists(st.sampled_from(JOB_KINDS)))
def test_words_are_among_some_if_they_are(kinds: list[str]) -> None:
    chosen = ("send", "other")
    assert is_among(pl.Series(kinds, dtype=JOB_KIND), chosen).tolist() == [kind in chosen for kind in kinds]


@given(st.lists(st.tuples(*[packed_values] * 3), max_size=8))
@settings(deadline=None, max_examples=200)
@example([(0, 1 << 62, 0), (1 << 60, -(1 << 62), 1), (0, -(1 << 62), 1 << 62)])
def test_packed_numbers_are_equal_where_all_columns_are(rows: list[tuple[int, int, int]]) -> None:
    packed = pack(*np.array(rows, np.int64).reshape(-1, 3).T).tolist()
    assert len(packed) == len(rows)
    for one, number in zip(rows, packed, strict=True):
        for other, beside in zip(rows, packed, strict=True):
            assert (one == other) == (number == beside)
