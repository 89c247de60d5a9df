"""Strings of columns: numbered in order of appearance, whatever their codes are."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.output.trace.columns import intern


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.String, pl.Enum(list("abcde"))])
@given(words=st.lists(st.one_of(st.none(), st.sampled_from("abcde")), max_size=40))
def test_numbers_of_strings_ascend_in_order_of_appearance(
    dtype: pl.DataType, words: list[str | None]
) -> None:
    distinct = list(dict.fromkeys(word for word in words if word is not None))
    expected = [0 if word is None else 1 + distinct.index(word) for word in words]
    texts, numbers = intern(pl.Series(words, dtype=dtype))
    assert (texts.to_list(), numbers.tolist()) == (distinct, expected)
