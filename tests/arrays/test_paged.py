"""Arrays in paged memory have the same values as others, and their pages leave memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import paged as paged_module
from nsys_pp.arrays import scratch
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.paged import PagedMemory
from nsys_pp.arrays.scratch import drop_pages, is_paged, open_scratch, page_arrays, share_scratch

pytestmark = pytest.mark.skipif(
    load_core() is None or not scratch._HAS_PAGES,
    reason="paged memory is in the compiled functions, on Linux",
)
COUNT = 4 << 20


def is_in_file(values: np.ndarray) -> bool:
    in_use = scratch._scratch.get()
    assert in_use is not None
    return in_use.has(values)


def mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[2]) * resource.getpagesize()


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[None]:
    with open_scratch(tmp_path):
        page_arrays(least_bytes=1 << 20)
        yield


@pytest.mark.usefixtures("paged")
def test_large_arrays_are_in_files_and_small_ones_in_memory() -> None:
    large, small = np.arange(COUNT), np.arange(9)
    assert is_paged()
    assert is_in_file(large)
    assert not is_in_file(small)
    assert is_in_file(large * 2)


@pytest.mark.usefixtures("paged")
def test_pages_leave_memory_and_values_stay() -> None:
    values = np.arange(COUNT)
    drop_pages()
    before = mapped_bytes()
    assert values[-1] == COUNT - 1
    assert int(values.sum()) == COUNT * (COUNT - 1) // 2
    assert mapped_bytes() - before > values.nbytes // 2 or values.nbytes > scratch._MOST_PAGED_BYTES
    drop_pages()
    assert mapped_bytes() - before < values.nbytes // 2


@pytest.mark.usefixtures("paged")
def test_freed_maps_are_used_again_and_new_zeros_are_zero() -> None:
    values = np.full(COUNT, 7)
    address = values.ctypes.data
    del values
    again = np.empty(COUNT, dtype=np.int64)
    assert again.ctypes.data == address
    again[:] = 9
    del again
    zeros = np.zeros(COUNT, dtype=np.int64)
    assert zeros.ctypes.data == address
    assert not zeros.any()


@pytest.mark.usefixtures("paged")
def test_arrays_can_grow_and_shrink() -> None:
    values = np.arange(COUNT)
    values.resize(2 * COUNT, refcheck=False)
    assert is_in_file(values)
    assert np.array_equal(values[:COUNT], np.arange(COUNT))
    assert not values[COUNT:].any()
    values.resize(5, refcheck=False)
    assert values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("paged")
def test_threads_that_share_the_scratch_use_it() -> None:
    with ThreadPoolExecutor(1, initializer=share_scratch()) as pool:
        assert is_in_file(pool.submit(np.arange, COUNT).result())
    with ThreadPoolExecutor(1) as pool:
        assert not is_in_file(pool.submit(np.arange, COUNT).result())


def test_it_ends_with_the_scratch(tmp_path: Path) -> None:
    with open_scratch(tmp_path):
        page_arrays(least_bytes=1 << 20)
        inside = np.arange(COUNT)
    assert not is_paged()
    library = paged_module._load_library()
    assert library is not None
    assert library.core_is_paged(inside.ctypes.data)
    assert not library.core_is_paged(np.arange(COUNT).ctypes.data)
    assert int(inside[-1]) == COUNT - 1
    assert not [*tmp_path.iterdir()]


def test_arrays_are_in_memory_where_no_file_can_be(tmp_path: Path) -> None:
    memory = PagedMemory(tmp_path / "absent", 1)
    end = memory.use()
    try:
        values = np.arange(COUNT)
        assert not memory.has(values)
        assert int(values[-1]) == COUNT - 1
    finally:
        end()
        memory.close()


@given(sizes=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30))
def test_arrays_keep_their_values_while_others_come_and_go(sizes: list[tuple[int, bool]]) -> None:
    """Each array is of some pages, kept or freed at once."""
    kept: list[tuple[np.ndarray, int]] = []
    with open_scratch(None):
        page_arrays(least_bytes=1)
        for number, (size, is_kept) in enumerate(sizes):
            values = np.full(size * 1000, number)
            if is_kept:
                kept.append((values, number))
            drop_pages()
    assert all((values == number).all() for values, number in kept)
