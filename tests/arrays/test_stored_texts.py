"""Names whose texts are in files equal names in memory: their texts, which of them are equal, and all that is made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import names as row_names
from nsys_pp.arrays import scratch, stored_texts
from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.names import as_names, as_texts, fill_names, is_matched, is_named, list_names, map_names
from nsys_pp.arrays.scratch import open_scratch
from nsys_pp.arrays.stored_texts import build_names, find_store, open_store
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.names import NAME, NO_NAME, StoredName

pytestmark = pytest.mark.skipif(not scratch._HAS_PAGES, reason="the system has no pages to drop")
texts = st.text("ab1é\0😀", min_size=1, max_size=30) | st.sampled_from(["step 1", "step 2", NO_NAME])
blocks = st.lists(st.lists(st.none() | texts, max_size=9), max_size=5)


def store_names(blocks: Sequence[Sequence[str | None]]) -> pl.Series:
    """Store texts block by block, and number equal ones alike."""
    store = open_store()
    assert store is not None
    parts = [build_names(pl.Series("name", block, pl.String), store.dtype) for block in blocks]
    column = pl.concat([pl.Series("name", [], store.dtype), *parts])
    store.add_word(NO_NAME)
    first_of = store.unify()
    codes = np.append(first_of.astype(np.int64), -1)[numbers(column, null=-1)]
    stored = pl.Series("name", codes).cast(pl.UInt32, strict=False).set(pl.Series(codes < 0), None)
    return stored.ext.to(store.dtype)


def check_texts(blocks: Sequence[Sequence[str | None]]) -> None:
    expected = [text for block in blocks for text in block]
    with open_scratch(None, least_bytes=0):
        column = store_names(blocks)
        codes = column.to_physical().to_list()
        assert as_texts(column).to_list() == expected
    assert [code is None for code in codes] == [text is None for text in expected]
    assert len({*codes} - {None}) == len({*expected} - {None})


@given(blocks)
def test_texts_are_decoded_and_equal_ones_have_one_number(blocks: list[list[str | None]]) -> None:
    check_texts(blocks)


@given(blocks, st.integers(1, 3))
def test_different_texts_with_the_same_hash_stay_different(
    blocks: list[list[str | None]], hashes: int
) -> None:
    def hash_badly(texts: pl.Series) -> np.ndarray:
        return (texts.str.len_bytes().to_numpy() % hashes).astype(np.uint64)

    with mock.patch.object(stored_texts, "_hash", hash_badly), mock.patch.object(stored_texts, "_WINDOW", 2):
        check_texts(blocks)


@given(blocks, st.integers(0, 12))
def test_texts_are_in_memory_where_the_disk_is_full(blocks: list[list[str | None]], writes: int) -> None:
    """The disk has space for some writes."""
    left, write = [writes], os.pwrite

    def write_some(handle: int, data: bytes, at: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError
        return write(handle, data, at)

    with mock.patch.object(os, "pwrite", write_some), mock.patch.object(stored_texts, "_MOST", 1):
        check_texts(blocks)


@given(blocks, st.sampled_from(["step", "1", "b+", "é"]))
def test_functions_of_names_are_the_same_for_stored_ones(
    blocks: list[list[str | None]], pattern: str
) -> None:
    column = pl.Series("name", [text for block in blocks for text in block], NAME)
    with open_scratch(None, least_bytes=0), mock.patch.object(row_names, "WINDOW", 3):
        stored = store_names(blocks)
        assert as_names(stored).equals(column)
        assert as_names(stored).dtype == NAME
        assert (
            as_texts(fill_names(stored, NO_NAME)).to_list() == as_texts(column).fill_null(NO_NAME).to_list()
        )
        assert is_named(stored, re.escape(pattern)).tolist() == is_named(column, re.escape(pattern)).tolist()
        assert is_matched(stored, pattern).tolist() == is_matched(column, pattern).tolist()
        assert map_names(stored, lambda some: some.str.replace_all("1", "#")).equals(
            column.cast(pl.String).str.replace_all("1", "#").cast(NAME)
        )
        names = list_names(stored)
        assert [names.texts[row] for row in names.row.tolist()] == column.to_list()


def test_texts_are_freed_with_their_scratch() -> None:
    with open_scratch(None):
        dtype = store_names([["forward", "backward"]]).dtype
        assert isinstance(dtype, StoredName)
        assert find_store(dtype).count == 3
    assert dtype.store not in stored_texts._stores


def test_without_a_scratch_there_is_no_store() -> None:
    assert open_store() is None


def test_stored_names_are_names_of_a_contract_and_no_other_text() -> None:
    with open_scratch(None):
        frame = pl.DataFrame([store_names([["forward", None]])])
        assert conform(frame, build_schema({"name": NAME}, name="RANGES")).equals(frame)
        with pytest.raises(ValueError, match="column `name` is"):
            conform(frame, build_schema({"name": pl.String}, name="RANGES"))
