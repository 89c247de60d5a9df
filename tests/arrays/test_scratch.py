"""Columns in a scratch have the same values as in memory, and their pages leave memory."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import scratch
from nsys_pp.arrays.scratch import (
    GrowingColumn,
    drop_pages,
    move_array,
    move_columns,
    open_scratch,
    share_scratch,
)

needs_pages = pytest.mark.skipif(not scratch._HAS_PAGES, reason="the system has no pages to drop")


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scratch, "_LARGE_BYTES", 1)
    with open_scratch(None):
        yield


def _refuse(**_: object) -> None:
    raise OSError(13, "Permission denied")


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[2]) * resource.getpagesize()


@given(
    blocks=st.lists(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=4)),
    most=st.integers(0, 12),
    is_in_file=st.booleans(),
)
def test_blocks_are_put_one_after_the_other(
    blocks: list[list[int | None]], most: int, is_in_file: bool
) -> None:
    """A block of None is not put, and is zero in a file."""
    with pytest.MonkeyPatch.context() as patch, open_scratch(None):
        patch.setattr(scratch, "_LARGE_BYTES", 0 if is_in_file else 1 << 20)
        column, count = GrowingColumn(most, np.dtype(np.int32)), 0
        expected: list[int | None] = []
        for block in blocks:
            if None not in block:
                column.put(count, np.array(block, dtype=np.int32))
            expected += [None] * len(block) if None in block else block
            count += len(block)
        values = column.build(count) if count else np.zeros(0, dtype=np.int32)
    assert len(values) == len(expected)
    for value, wanted in zip(values.tolist(), expected, strict=True):
        assert value == wanted or wanted is None


@needs_pages
@pytest.mark.usefixtures("everything_is_large")
def test_columns_keep_their_values_and_types() -> None:
    frame = pl.DataFrame(
        {
            "start": [3, 1, 2],
            "none": [None, None, None],
            "gap": [1, None, 3],
            "share": [0.5, 0.25, float("nan")],
            "is": [True, False, True],
            "small": pl.Series([1, 2, 3], dtype=pl.UInt8),
            "name": pl.Series(["a", None, "b"], dtype=pl.Categorical()),
        }
    )
    moved = move_columns(frame)
    assert moved.equals(frame, null_equal=True)
    assert moved.schema == frame.schema
    drop_pages()
    assert moved.equals(frame, null_equal=True)
    assert not moved["start"].to_numpy().flags.writeable
    assert move_array(array := moved["start"].to_numpy()) is array, "copied again"
    assert (
        move_columns(frame, ["small"])["start"].to_numpy().ctypes.data
        == frame["start"].to_numpy().ctypes.data
    )


@needs_pages
@pytest.mark.usefixtures("everything_is_large")
def test_arrays_that_are_not_contiguous_keep_their_values() -> None:
    array = np.arange(20)[::3]
    assert move_array(array).tolist() == array.tolist()


@needs_pages
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not count mapped pages")
def test_pages_leave_memory(tmp_path: Path) -> None:
    with open_scratch(tmp_path):
        values = move_array(np.ones(16 << 20, dtype=np.uint8))
        assert os.listdir(tmp_path) == [], "a file that a killed process would leave"
        before = mapped_bytes()
        assert values.all()
        assert mapped_bytes() > before + (12 << 20)
        drop_pages()
        assert mapped_bytes() < before + (4 << 20)
        assert values.all()
    assert values.all(), "arrays are valid after the scratch"


@needs_pages
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not count mapped pages")
def test_pages_leave_memory_while_a_stage_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_MOST_BYTES", 4 << 20)
    monkeypatch.setattr(scratch, "_WATCH_S", 0.001)
    with open_scratch(None) as _:
        values = move_array(np.ones(32 << 20, dtype=np.uint8))
        before, least = mapped_bytes(), 1 << 62
        for _ in range(2_000):
            assert values[:: 1 << 12].all()
            least = min(least, mapped_bytes())
            if least < before + (4 << 20):
                break
        else:
            pytest.fail("the pages stay")


@needs_pages
@pytest.mark.usefixtures("everything_is_large")
def test_a_full_disk_leaves_columns_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    column = GrowingColumn(4, np.dtype(np.int64))
    column.put(0, np.array([1, 2]))
    pwrite, left = os.pwrite, [12]

    def write(handle: int, data: bytes, at: int) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        taken, left[0] = min(left[0], len(data)), max(0, left[0] - len(data))
        return pwrite(handle, bytes(data)[:taken], at)

    monkeypatch.setattr(os, "pwrite", write)
    column.put(2, np.array([3, 4]))
    column.put(4, np.array([5]))
    assert column.build(5).tolist() == [1, 2, 3, 4, 5]
    array = np.arange(5)
    assert move_array(array) is array
    monkeypatch.setattr(tempfile, "TemporaryFile", _refuse)
    assert GrowingColumn(4, np.dtype(np.int64)).build(4).flags.writeable


@needs_pages
@pytest.mark.usefixtures("everything_is_large")
def test_a_scratch_is_of_the_threads_that_share_it() -> None:
    array = np.arange(5)
    with ThreadPoolExecutor(1) as alone, ThreadPoolExecutor(1, initializer=share_scratch()) as sharing:
        assert alone.submit(move_array, array).result() is array
        assert sharing.submit(move_array, array).result() is not array


def test_without_a_scratch_nothing_happens() -> None:
    array = np.zeros(1 << 20)
    frame = pl.DataFrame({"a": array})
    drop_pages()
    assert move_array(array) is array
    assert move_columns(frame) is frame
    column = GrowingColumn(1 << 20, np.dtype(np.int64))
    column.put(0, np.arange(1 << 20))
    assert column.build(1 << 20).flags.writeable
