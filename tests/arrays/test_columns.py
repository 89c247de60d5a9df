"""Columns as arrays and back, against their definition."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.columns import (
    as_numbers,
    as_whole_numbers,
    gather_rows,
    is_among,
    keep_rows,
    numbers,
    pack,
    whole_numbers,
)
from nsys_pp.arrays.names import is_matched, is_named
from nsys_pp.frames.conform import NAME, build_schema
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


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt32])
def test_whole_numbers_and_back(dtype: type[pl.DataType]) -> None:
    for values in ([], [3, None, 0], [None, None], [5]):
        series = pl.Series(values, dtype=dtype)
        assert whole_numbers(series).tolist() == [-1 if value is None else value for value in values]
        assert as_whole_numbers(whole_numbers(series), dtype).equals(series, check_dtypes=True)


names = st.lists(st.one_of(st.none(), st.sampled_from(["gemm", "SendRecv", "ncclSend_Recv", "adam"])))


@settings(deadline=None, max_examples=50)
@given(names)
def test_names_contain_the_pattern(values: list[str | None]) -> None:
    mask = is_named(pl.Series(values, dtype=pl.Categorical()), "(?i)send_?recv").tolist()
    assert mask == [name is not None and re.search("(?i)send_?recv", name) is not None for name in values]


@given(st.lists(st.one_of(st.none(), st.integers(0, 9))), st.data())
def test_gathered_rows_are_null_without_a_row(some: list[int | None], data: st.DataObject) -> None:
    frame = pl.DataFrame(
        {"rank": some, "name": [str(one) for one in some]}, schema={"rank": pl.Int64, "name": NAME}
    )
    row = data.draw(st.lists(st.integers(-1, len(some) - 1)))
    taken = gather_rows(frame, ("name", "rank"), np.array(row, dtype=np.int64))
    assert taken.rows() == [(None, None) if one < 0 else (str(some[one]), some[one]) for one in row]
    assert taken.schema == build_schema({"name": NAME, "rank": pl.Int64})


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_rows_of_a_mask_are_those_that_a_query_keeps(some: list[tuple[int, bool]]) -> None:
    frame = pl.DataFrame(some, schema={"step": pl.Int64, "is_kept": pl.Boolean}, orient="row")
    mask = frame["is_kept"].to_numpy()
    assert keep_rows(frame, mask).equals(frame.filter("is_kept"))


def test_names_that_match_are_those_of_a_query() -> None:
    texts = ["ncclSend", None, "gemm", "ncclSend", "NCCL", "xnccl"]
    names = pl.Series("name", texts, NAME)
    for pattern in ("^nccl", "(?i)nccl$", "gemm|Send"):
        expected = pl.Series(texts).str.contains(pattern).fill_null(value=False)
        assert is_matched(names, pattern).tolist() == expected.to_list()
        assert is_named(names, pattern).tolist() == expected.to_list()
    assert is_matched(names[:0], "^nccl").tolist() == []
