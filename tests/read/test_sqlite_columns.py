"""Rows that are added block by block equal their concatenation, and large columns are held once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.arrays import scratch
from nsys_pp.arrays.names import as_texts
from nsys_pp.arrays.scratch import open_scratch
from nsys_pp.arrays.stored_texts import open_store
from nsys_pp.frames.names import NAME, StoredName
from nsys_pp.read.sqlite_columns import Columns, OrderedColumns

ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.one_of(st.none(), st.integers(-3, 3)),
        st.one_of(st.none(), st.sampled_from(["", "text"])),
        st.none(),
    ),
    max_size=5,
)
SCHEMA = {"id": pl.Int64, "number": pl.Int32, "text": pl.String, "nothing": pl.Int64}


@given(st.lists(ROWS, min_size=1), st.integers(0, 30), st.booleans())
def test_blocks_are_concatenated(
    blocks: list[list[tuple[object, ...]]], most: int, is_in_scratch: bool
) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in blocks]
    with pytest.MonkeyPatch.context() as patch, open_scratch(None):
        patch.setattr(scratch, "_LARGE_BYTES", 0 if is_in_scratch else 1 << 20)
        columns = Columns(most)
        for frame in frames:
            columns.add(frame)
        assert_frame_equal(columns.build(), pl.concat(frames))


@given(st.lists(ROWS, min_size=1), st.booleans())
def test_texts_of_many_rows_are_categories(
    blocks: list[list[tuple[object, ...]]], is_in_scratch: bool
) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in blocks]
    whole = pl.concat(frames)
    with pytest.MonkeyPatch.context() as patch, open_scratch(None):
        patch.setattr(scratch, "_LARGE_BYTES", 0 if is_in_scratch else 1 << 20)
        columns = Columns(len(whole), {"text": NAME})
        for frame in frames:
            columns.add(frame)
        built = columns.build()
    assert built["text"].dtype == pl.Categorical()
    assert_frame_equal(built.cast({"text": pl.String}), whole)


@given(st.lists(ROWS, min_size=1))
def test_texts_of_very_many_rows_are_in_files(blocks: list[list[tuple[object, ...]]]) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in blocks]
    frames = [frame.with_columns(pl.col("text").replace({"": None})) for frame in frames]
    whole = pl.concat(frames)
    with open_scratch(None, least_bytes=0):
        store = open_store()
        assert store is not None
        columns = Columns(len(whole), {"text": store.dtype})
        for frame in frames:
            columns.add(frame)
        built = columns.build()
        assert isinstance(built["text"].dtype, StoredName)
        assert_frame_equal(built.with_columns(as_texts(built["text"])), whole)


@given(st.lists(st.integers(0, 4), min_size=1))
def test_rows_without_values_are_counted(sizes: list[int]) -> None:
    columns = Columns(sum(sizes))
    for size in sizes:
        columns.add(pl.DataFrame({"nothing": pl.Series([None] * size, dtype=pl.Int64)}))
    assert columns.build().height == sum(sizes)


def test_the_array_of_a_column_is_shared_and_not_copied() -> None:
    columns = Columns(8)
    for _ in range(2):
        columns.add(pl.DataFrame({"id": [1, 2, 3]}))
    array = columns._values["id"]._values
    assert array is not None
    built = columns.build()["id"]
    array[0] = 7
    assert built.to_list() == [7, 2, 3, 1, 2, 3]


@given(st.lists(ROWS, min_size=1, max_size=30), st.randoms(use_true_random=False), st.integers(1, 4))
def test_blocks_that_threads_add_are_in_order(
    blocks: list[list[tuple[object, ...]]], random: Random, threads: int
) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in blocks]
    numbers = random.sample(range(len(frames)), len(frames))
    columns = OrderedColumns(Columns(sum(map(len, frames)), {"text": NAME}))
    with ThreadPoolExecutor(threads) as pool:
        for added in [pool.submit(columns.add, number, frames[number]) for number in numbers]:
            added.result()
    assert_frame_equal(columns.build().cast({"text": pl.String}), pl.concat(frames))
