"""The compiled functions: they equal the numpy functions that define them, refuse wrong arguments, and touch no other memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays import core as compiled
from nsys_pp.arrays import nesting, order, search
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.types import Int64s
from nsys_pp.projection import windows
from nsys_pp.projection.busy import measure_busy
from nsys_pp.projection.range_minimum import find_minimum
from tests.arrays.owned_intervals import draw_intervals, draw_windows
from tests.projection.definition import union_ns

REPOSITORY = Path(__file__).resolve().parents[2]


def test_it_is_built_where_there_is_a_compiler() -> None:
    if os.environ.get("NSYS_PP_CORE") == "0" or sys.platform != "linux":
        pytest.skip("not wanted here")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no compiler")
    assert load_core() is not None


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


seeds = st.integers(0, 2**32 - 1)
needs_core = pytest.mark.skipif(load_core() is None, reason="no compiled functions")


def the_core() -> Core:
    found = load_core()
    assert found is not None
    return found


@needs_core
@given(seeds)
def test_orders_equal_those_of_numpy(seed: int) -> None:
    owner, start, end = draw_intervals(seed)
    core = the_core()
    assert np.array_equal(core.order_by_time(owner, start, end), np.lexsort((end, start, owner)))
    descending = core.order_by_time(owner, start, end, is_descending=True)
    assert np.array_equal(descending, np.lexsort((-end, start, owner)))
    number = np.abs(start) % 50
    order, before = core.order_by_number(number, 50)
    assert np.array_equal(order, np.argsort(number, kind="stable"))
    assert before.tolist() == [int((number < value).sum()) for value in range(51)]


@needs_core
@given(seeds)
def test_searches_equal_those_of_numpy(seed: int) -> None:
    owner, start, end = draw_intervals(seed)
    core = the_core()
    rows = core.find_first_rows(owner)
    assert rows is not None
    assert np.array_equal(rows, search._find_first_rows(owner))
    numbered = core.number_keys(owner)
    assert numbered is not None
    first, number = search._number_keys(owner)
    assert np.array_equal(numbered[0], first)
    assert np.array_equal(numbered[1], number)
    values = np.sort(end)
    assert np.array_equal(core.search(values, start), np.searchsorted(values, start))


@needs_core
@given(seeds)
def test_nesting_equals_nesting_in_numpy(seed: int) -> None:
    intervals = draw_intervals(seed)
    for own, defined in zip(
        the_core().find_parents(*intervals), nesting._find_parents(*intervals), strict=True
    ):
        assert np.array_equal(own, defined)


@needs_core
@given(seeds, st.booleans())
def test_windows_equal_windows_in_numpy(seed: int, following: bool) -> None:
    """Calls that end in another order than they start are left to numpy."""
    owner, start, end = draw_intervals(seed + 1, following=following)
    order = np.lexsort((end, start, owner))
    calls = owner[order], start[order], end[order]
    ranges = draw_intervals(seed)
    ranges = (np.where(ranges[1] % 3 > 0, np.resize(np.append(owner, 7), len(ranges[0])), 5), *ranges[1:])
    own, defined = the_core().find_windows(ranges, calls), windows._find_windows(*ranges, *calls)
    is_same_owner = calls[0][1:] == calls[0][:-1]
    if (is_same_owner & (calls[2][1:] < calls[2][:-1])).any():
        assert own is None
    else:
        assert own is not None
        assert np.array_equal(own[0], defined.first)
        assert np.array_equal(own[1], defined.last)


@needs_core
@given(seeds)
def test_extremes_and_unions_are_their_definitions(seed: int) -> None:
    start, end, first, last = draw_windows(seed)
    core = the_core()
    first_op, last_op = core.find_extremes(start, end, first, last)
    unions = core.measure_unions(start, end, first, last)
    assert unions is not None
    middles = [at for at in range(len(start) + 1) if not ((first < at) & (at < last)).any()]
    halves = core.measure_unions(start, end, first, last, middle=middles[seed % len(middles)])
    assert halves is not None
    assert np.array_equal(halves, unions)
    for row, (begin, stop) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        ops = range(begin, stop)
        assert first_op[row] == min(ops, key=lambda op: (start[op], op))
        assert last_op[row] == min(ops, key=lambda op: (-end[op], op))
        assert unions[row] == union_ns((int(start[op]), int(end[op])) for op in ops)


@needs_core
@pytest.mark.parametrize("streams", [1, 8, 300])
def test_long_windows_equal_those_in_numpy(streams: int) -> None:
    """More operations than the first levels of sums and of slots hold, some of which cover many others."""
    random = np.random.Generator(np.random.PCG64(streams))
    at = np.arange(20_000)
    start = at // streams * 1000 + random.integers(0, 900, len(at)) + at % streams * 77_000
    end = start + np.where(at % 500 == 0, 40_000_000, random.integers(0, 2_000, len(at)))
    first, last = np.sort(random.integers(0, len(at), (3_000, 2)), axis=1).T
    last = last + 1
    core, rows = the_core(), np.arange(len(first))
    busy = measure_busy(
        op_start=start,
        op_end=end,
        op_call_by_start=at,
        op_call_by_end=at,
        op_owner=np.zeros_like(at),
        call_count=len(at),
        segment_row=rows,
        segment_first=first,
        segment_last=last,
        first_by_start=first,
        last_by_end=last,
    )
    unions = core.measure_unions(start, end, first, last)
    assert unions is not None
    assert np.array_equal(unions, busy)
    first_op, last_op = core.find_extremes(start, end, first, last)
    assert np.array_equal(start[first_op], find_minimum(start, first, last))
    assert np.array_equal(end[last_op], -find_minimum(-end, first, last))


@needs_core
def test_more_keys_than_are_numbered_are_left_to_numpy() -> None:
    many, core = np.arange(70_000)[::-1].copy(), the_core()
    assert core.find_first_rows(many) is None
    assert core.number_keys(many) is None
    assert np.array_equal(search.find_first_rows(many), np.arange(70_000))
    assert core.find_windows((many, many, many), (many[::-1], many, many)) is None
    assert np.array_equal(core.order_by_time(many, many, many), many)


@needs_core
@pytest.mark.parametrize("shape", ["nested", "nested in reverse", "in turn with one around all", "far apart"])
def test_no_shape_of_input_makes_it_quadratic(shape: str) -> None:
    """A quadratic step would take minutes for this many rows; the linear ones take a tenth of a second."""
    at = np.arange(300_000)
    start, end = at, 10**6 - at
    if shape == "nested in reverse":
        start, end = start[::-1], end[::-1]
    elif shape == "in turn with one around all":
        start, end = np.where(at % 2, 0, 2 * at), np.where(at % 2, 2 * at[-1] + 2, 2 * at + 1)
    elif shape == "far apart":
        start = np.where(at % 2, at, 10**9 - at)
        end = start + 10**5
    core, owner, began = the_core(), np.zeros_like(at), time.process_time()
    core.find_parents(owner, start, end)
    core.search(np.sort(start), start)
    core.find_windows((owner, start, end), (owner, np.sort(start), np.sort(end)))
    for first, last in ((at, at + 1), (at * 0, at + 1), (at, at * 0 + len(at)), (at * 0, at * 0 + len(at))):
        core.find_extremes(start, end, first, last)
        core.measure_unions(start, end, first, last)
    assert time.process_time() - began < 10


@needs_core
def test_times_that_have_no_difference_are_left_to_numpy() -> None:
    near, far, window = np.array([-(1 << 62), 5]), np.array([9, 1 << 62]), np.array([0, 1])
    assert the_core().measure_unions(near, far, window, window + 1) is None
    assert the_core().measure_unions(far, near, window, window + 1) is None


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda core, rows: core.sort_rows(rows, rows[:2]), ValueError),
        (lambda core, rows: core.order_by_time(rows, rows, rows[:2]), ValueError),
        (lambda core, rows: core.order_by_number(rows, 2), IndexError),
        (lambda core, rows: core.order_by_number(rows - 1, 3), IndexError),
        (lambda core, rows: core.find_parents(rows, rows, rows[:2]), ValueError),
        (lambda core, rows: core.find_windows((rows, rows, rows[:2]), (rows,) * 3), ValueError),
        (lambda core, rows: core.find_extremes(rows, rows[:2], rows, rows + 1), ValueError),
        (lambda core, rows: core.find_extremes(rows, rows, rows, rows + 2), IndexError),
        (lambda core, rows: core.measure_unions(rows, rows, rows - 1, rows + 1), IndexError),
        (lambda core, rows: core.measure_unions(rows, rows, rows, rows), IndexError),
        (lambda core, rows: core.measure_unions(rows, rows, rows * 0, rows + 1, middle=1), IndexError),
        (lambda core, rows: core.measure_unions(rows, rows, rows, rows + 1, middle=4), IndexError),
        (lambda core, rows: core.measure_unions(rows, rows, rows, rows[:2] + 1), ValueError),
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
    assert np.array_equal(core.sort_rows(end, start), core.sort_rows(end.copy(), start.copy()))
    assert core.sort_rows(end[:0], start[:0]).tolist() == []


@pytest.mark.parametrize("content", [b"", b"no library", None])
def test_without_it_numpy_does_the_same(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libcore.so"
    if content is not None:
        library.write_bytes(content)
    monkeypatch.setattr(compiled, "LIBRARY", library)
    assert load_core.__wrapped__() is None
    monkeypatch.setattr(order, "load_core", load_core.__wrapped__)
    assert order.sort_rows(np.array([0, 5, 10, 6])).tolist() == [0, 1, 3, 2]


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
        [sys.executable, "-m", "tests.arrays.sanitized", str(library), "400"],
        env=os.environ | {"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "400"
