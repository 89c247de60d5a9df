"""The compiled functions: they equal the numpy functions that define them, refuse wrong arguments, and touch no other memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import core as compiled
from nsys_pp.arrays import order
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.types import Int64s
from nsys_pp.write.trace import packing, strings
from tests.arrays.nested_slices import draw_nested_slices

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def core() -> Core:
    found = load_core()
    if found is None:
        pytest.skip("no compiled functions: there was no compiler, or `NSYS_PP_CORE=0`")
    return found


def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "load_core", lambda: None)


def test_it_is_built_where_there_is_a_compiler() -> None:
    if os.environ.get("NSYS_PP_CORE") == "0" or sys.platform != "linux":
        pytest.skip("not wanted here")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no compiler")
    assert load_core() is not None


@given(st.integers(0, 2**32 - 1))
def test_packing_equals_packing_in_numpy(seed: int) -> None:
    start, end, parent = draw_nested_slices(seed)
    with pytest.MonkeyPatch.context() as patch:
        flat, nested = packing.pack_flat(start, end), packing.pack_nested(start, end, parent)
        in_numpy(patch)
        assert np.array_equal(flat, packing.pack_flat(start, end))
        for own, defined in zip(nested, packing.pack_nested(start, end, parent), strict=True):
            assert np.array_equal(own, defined)


@pytest.mark.parametrize("overlap", [1, 30, 600])
def test_packing_equals_packing_in_numpy_at_length(overlap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More lanes than the first tree of lanes has room for, and long runs of slices that begin together."""
    random = np.random.Generator(np.random.PCG64(overlap))
    start = np.sort(random.integers(0, 4_000, 3_000))
    end = start + random.integers(0, 2 * overlap, 3_000)
    parent = np.maximum(np.arange(3_000) - random.integers(1, 6, 3_000), -1)
    flat, nested = packing.pack_flat(start, end), packing.pack_nested(start, end, parent)
    in_numpy(monkeypatch)
    assert np.array_equal(flat, packing.pack_flat(start, end))
    for own, defined in zip(nested, packing.pack_nested(start, end, parent), strict=True):
        assert np.array_equal(own, defined)


@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 3), max_size=60), st.integers(0, 3))
def test_sorting_equals_sorting_in_numpy(rows: list[tuple[int, int, int]], runs: int) -> None:
    rows = [*rows[: len(rows) // 2], *sorted(rows[len(rows) // 2 :])] if runs else rows
    keys = [np.array(key, dtype=np.int64) for key in zip(*rows, strict=True)] or [np.zeros(0, np.int64)]
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    assert order.sort_rows(*keys).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "load_core", lambda: None)
        assert order.sort_rows(*keys).tolist() == expected


def test_sorting_equals_sorting_in_numpy_at_length() -> None:
    """Many runs, of which few rows move, and equal rows far from each other."""
    random = np.random.Generator(np.random.PCG64(1))
    time = np.arange(20_000) + random.integers(0, 50, 20_000)
    for keys in ((time, -time), (time % 3, time), (random.integers(0, 4, 20_000), time // 1_000)):
        assert np.array_equal(order.sort_rows(*keys), np.lexsort(keys[::-1]))


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcde"), st.text(max_size=2)), max_size=40))
def test_numbers_of_strings_ascend_in_order_of_appearance(words: list[str | None]) -> None:
    column = pl.Series(words, dtype=pl.Categorical())
    distinct = list(dict.fromkeys(word for word in words if word is not None))
    expected = [0 if word is None else 1 + distinct.index(word) for word in words]
    for load in (load_core, lambda: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(strings, "load_core", load)
            texts, numbers = strings.intern(column)
        assert (texts.to_list(), numbers.tolist()) == (distinct, expected)


def test_a_code_far_beyond_the_rows_needs_no_table(core: Core) -> None:
    assert core.number_codes(np.array([4_000_000_000, 5], dtype=np.uint32), null=strings.NULL) is None


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda core, rows: core.pack_flat(rows, rows[:2]), ValueError),
        (lambda core, rows: core.sort_rows(rows, rows[:2]), ValueError),
        (lambda core, rows: core.pack_nested(rows, rows, rows[:2]), ValueError),
        (lambda core, rows: core.pack_nested(rows, rows, np.array([-1, 0, 3])), IndexError),
        (lambda core, rows: core.pack_nested(rows, rows, np.array([-2, 0, 1])), IndexError),
    ],
)
def test_wrong_arguments_do_not_reach_it(
    core: Core, call: Callable[[Core, Int64s], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(core, np.arange(3))


def test_columns_of_any_layout_are_taken(core: Core) -> None:
    wide = np.arange(12, dtype=np.int64).reshape(6, 2)
    start, end = wide[:, 0], wide[:, 1] + 1
    assert np.array_equal(core.pack_flat(start, end), core.pack_flat(start.copy(), end.copy()))
    assert core.pack_flat(start[:0], end[:0]).tolist() == []


@pytest.mark.parametrize("content", [b"", b"no library", None])
def test_without_it_numpy_does_the_same(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libcore.so"
    if content is not None:
        library.write_bytes(content)
    monkeypatch.setattr(compiled, "LIBRARY", library)
    assert load_core.__wrapped__() is None
    monkeypatch.setattr(packing, "load_core", load_core.__wrapped__)
    assert packing.pack_flat(np.array([0, 5, 10, 6]), np.array([10, 8, 20, 12])).tolist() == [0, 1, 0, 2]


def test_it_touches_no_memory_but_its_own(tmp_path: Path) -> None:
    """Random inputs under the address and undefined-behaviour sanitizers of the compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc: the sanitizers come with it")
    library = tmp_path / "libcore.so"
    options = ["-g", "-O1", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = REPOSITORY / "nsys_pp" / "arrays" / "core.c"
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    sanitizer = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    done = subprocess.run(
        [sys.executable, "-m", "tests.arrays.nested_slices", str(library), "400"],
        env=os.environ | {"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "400"
