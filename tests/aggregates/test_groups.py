"""Rows by key, held to a plain loop."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.aggregates.groups import split_rows

KEYS = st.tuples(st.sampled_from([None, 3, 7]), st.integers(0, 1))


@given(st.lists(KEYS, max_size=12))
def test_rows_are_those_with_the_key(rows: list[tuple[int | None, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"process": pl.Int64, "device": pl.Int32}, orient="row")
    expected: dict[tuple[object, ...], list[int]] = {}
    for number, key in enumerate(rows):
        expected.setdefault(key, []).append(number)
    found = {key: np.arange(len(rows))[own].tolist() for key, own in split_rows(frame, frame.columns).items()}
    assert found == expected
    assert list(found) == list(expected)
