"""Measures of ranges (minima of windows, busy time, targets), against plain loops."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.report import API_CALLS, GPU_OPS, RANGES
from nsys_pp.projection.measure import find_minimum, measure_busy, sum_around
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.projection.windows import Windows, find_windows, split_windows
from tests.projection.definition import union_ns


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    values = draw(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 3), min_size=1, max_size=40))
    first = st.integers(0, len(values) - 1)
    pairs = draw(st.lists(st.tuples(first, st.integers(1, len(values))), max_size=30))
    return values, [(start, min(start + size, len(values))) for start, size in pairs]


@given(case=windows())
def test_minima_are_those_of_a_loop(case: tuple[list[int], list[tuple[int, int]]]) -> None:
    values, pairs = case
    first, last = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    minima = find_minimum(np.array(values), first, last)
    assert minima.tolist() == [min(values[low:high]) for low, high in pairs]


def test_the_input_is_left_alone() -> None:
    values = np.arange(100)[::-1].copy()
    find_minimum(values, np.zeros(1000, dtype=np.int64), np.full(1000, 100))
    assert values.tolist() == list(range(100))[::-1]


ranges = st.lists(st.tuples(st.integers(-3, 40), st.integers(0, 45)), min_size=1, max_size=12)


def measure(
    calls: list[tuple[int, int]], ops: list[tuple[int, int]], rows: list[tuple[int, int]], scale: int
) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Return the busy time and the operations of each range with operations; operation i belongs to call i."""
    order = sorted(range(len(calls)), key=lambda row: calls[row])
    call = np.array([calls[row] for row in order], dtype=np.int64).T
    op = np.array([ops[row] for row in order], dtype=np.int64).T * scale
    interval = np.array(rows, dtype=np.int64).T
    range_owner, call_owner = np.zeros_like(interval[0]), np.zeros_like(call[0])
    windows = find_windows(range_owner, interval[0], interval[1], call_owner, call[0], call[1])
    row, first, last = split_windows(windows)
    hit, segment_row = np.unique(row, return_inverse=True)
    if not len(hit):
        return [], []
    position = np.arange(len(order))
    busy = measure_busy(
        op_start=op[0],
        op_end=op[1],
        op_call_by_start=position,
        op_call_by_end=position if windows.end_position is None else windows.end_position,
        op_owner=np.zeros_like(position),
        call_count=len(order),
        segment_row=segment_row,
        segment_first=first,
        segment_last=last,
        first_by_start=windows.first[hit],
        last_by_end=windows.last_by_end[hit],
    )
    inside = [
        [
            (start * scale, end * scale)
            for (begin, finish), (start, end) in zip(calls, ops, strict=True)
            if rows[row][0] <= begin and finish <= rows[row][1]
        ]
        for row in hit
    ]
    return busy.tolist(), inside


@settings(max_examples=500, deadline=None)
@given(
    ops=st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 12)), min_size=1, max_size=25),
    begins=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), min_size=25, max_size=25),
    rows=ranges,
    scale=st.sampled_from([1, 1_000_003, 10**15]),
    times=st.sampled_from([1, 1, 50]),
)
def test_busy_is_the_length_of_the_union(
    ops: list[tuple[int, int]],
    begins: list[tuple[int, int]],
    rows: list[tuple[int, int]],
    scale: int,
    times: int,
) -> None:
    """Many ranges around the same calls are measured in another way than few."""
    calls = [(start, start + length) for start, length in begins[: len(ops)]]
    ops = [(start, start + length) for start, length in ops]
    rows = [(start, start + length) for start, length in rows]
    busy_ns, inside = measure(calls, ops, rows * times, scale)
    assert busy_ns == [union_ns(intervals) for intervals in inside[: len(inside) // times]] * times


def test_busy_of_thousands_that_overlap() -> None:
    """More slots and operations than are measured at a time."""
    random = np.random.default_rng(5)
    count = 2_500
    begin = random.integers(0, 10**6, count)
    ops = [
        (int(at), int(at + size)) for at, size in zip(begin, random.integers(1, 10**6, count), strict=True)
    ]
    calls = [(10 * row, 10 * row + 5) for row in range(count)]
    rows = [(10 * row, 10 * (count - row)) for row in range(0, count // 2, 4)]
    busy_ns, inside = measure(calls, ops, rows, 1)
    assert busy_ns == [union_ns(intervals) for intervals in inside]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 9)), max_size=30),
    st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=15),
)
def test_links_around_windows(
    drawn_links: list[tuple[int, int, int]], windows: list[tuple[int, int]]
) -> None:
    low, high, weight = np.array(drawn_links, dtype=np.int64).reshape(-1, 3).T
    first, last = np.array(windows, dtype=np.int64).reshape(-1, 2).T
    assert sum_around(low, high, weight, first, last).tolist() == [
        sum(length for low_call, high_call, length in drawn_links if low_call < begin and high_call >= end)
        for begin, end in windows
    ]


def test_nanoseconds_survive_a_sum_of_days() -> None:
    """A hundred days of operations that do not overlap, in one range."""
    count, day = 100, 86_400 * 10**9
    ops: list[Any] = [(day * number, day * number + day - 1) for number in range(count)]
    busy, _ = measure([(number, number) for number in range(count)], ops, [(0, count), (5, 5)], 1)
    assert busy == [count * (day - 1), day - 1]


def test_operations_far_apart_do_not_overflow() -> None:
    calls, ops = (
        [(0, 1), (2, 3), (4, 5)],
        [(-(2**61), -(2**61) + 9), (2**61, 2**61 + 9), (2**61 + 4, 2**61 + 11)],
    )
    assert measure(calls, ops, [(0, 9), (2, 9)], 1)[0] == [20, 11]


def project(ops: list[dict[str, Any]], **options: Any) -> pl.DataFrame:
    """Project one range around one call per operation, in order."""
    common = {"process_key": 1, "thread_key": 1, "is_open": False}
    count = len(ops)
    ranges = pl.DataFrame([{**common, "range_id": 1, "start_ns": 0, "end_ns": 10 * count}], schema=RANGES)
    calls = [
        {"process_key": 1, "thread_key": 1, "correlation_id": n, "start_ns": 10 * n, "end_ns": 10 * n + 1}
        for n in range(count)
    ]
    defaults = {"process_key": 1, "device_id": 0, "stream_id": 7, "kind": "kernel"}
    rows = [{**defaults, "op_id": n, "correlation_id": n, **op} for n, op in enumerate(ops)]
    calls_frame, ops_frame = pl.DataFrame(calls, schema=API_CALLS), pl.DataFrame(rows, schema=GPU_OPS)
    return project_ranges(ranges, calls_frame, ops_frame, **options)


FAR = 1 << 60  # index and time together need more than 64 bits


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        pytest.param(
            [
                {"name": "middle", "start_ns": 0, "end_ns": 5},
                {"name": "last", "start_ns": FAR, "end_ns": FAR + 9},
                {"name": "first", "start_ns": -FAR, "end_ns": -FAR + 7},
                {"name": "late", "start_ns": FAR + 1, "end_ns": FAR + 8},
            ],
            {"gpu_start_ns": -FAR, "gpu_end_ns": FAR + 9, "first_op": "first", "last_op": "last"}
            | {"busy_ns": 5 + 9 + 7},
            id="first and last, whatever lies between",
        ),
        pytest.param(
            [{"name": name, "start_ns": 0, "end_ns": 5} for name in ("a", "b", "c")],
            {"first_op": "a", "last_op": "a"},
            id="of equal ones the first launched",
        ),
        pytest.param(
            [{"correlation_id": 0, "start_ns": n, "end_ns": n + 2} for n in range(4)],
            {"call_count": 1, "op_count": 4, "busy_ns": 5},
            id="a graph is one call",
        ),
    ],
)
def test_a_projection_has_its_ends_and_counts(ops: list[dict[str, Any]], expected: dict[str, object]) -> None:
    assert project(ops).select(*expected).to_dicts() == [expected]


def test_targets_are_sorted() -> None:
    targets = [(1, 9), (0, 20), (1, 7), (0, 3), (1, 9)]
    ops = [
        {"device_id": d, "stream_id": s, "start_ns": n, "end_ns": n + 1} for n, (d, s) in enumerate(targets)
    ]
    assert project(ops)["device_id"].to_list() == [0, 1]
    split = project(ops, per_stream=True).select("device_id", "stream_id", "op_count")
    assert split.rows() == [(0, 3, 1), (0, 20, 1), (1, 7, 1), (1, 9, 2)]


Interval = tuple[int, int, int]  # owner, start, end


def interval_lists(most_length: int) -> st.SearchStrategy[list[Interval]]:
    interval = st.tuples(st.sampled_from([-7, 0, 1 << 60]), st.integers(-10, 10), st.integers(0, most_length))
    return st.lists(interval.map(lambda draw: (draw[0], draw[1], draw[1] + draw[2])), max_size=20)


def find_interval_windows(ranges: list[Interval], calls: list[Interval]) -> Windows:
    columns = (
        *np.array(ranges, dtype=np.int64).reshape(-1, 3).T,
        *np.array(calls, dtype=np.int64).reshape(-1, 3).T,
    )
    return find_windows(*columns)


def list_end_positions(windows: Windows) -> list[int]:
    positions: list[int] = windows.end_position.tolist()
    return positions


def is_inside(call: Interval, range_: Interval) -> bool:
    return call[0] == range_[0] and range_[1] <= call[1] and call[2] <= range_[2]


@settings(max_examples=500, deadline=None)
@given(interval_lists(15), interval_lists(6))
def test_windows_hold_the_calls_inside_and_no_other(ranges: list[Interval], calls: list[Interval]) -> None:
    calls.sort()
    windows = find_interval_windows(ranges, calls)
    cuts = set(zip(windows.cut_range.tolist(), windows.cut_position.tolist(), strict=True))
    segments = list(zip(*(column.tolist() for column in split_windows(windows)), strict=True))
    assert segments == sorted(segments)
    for row, range_ in enumerate(ranges):
        inside = {position for position, call in enumerate(calls) if is_inside(call, range_)}
        window = set(range(int(windows.first[row]), int(windows.last[row])))
        assert inside == {position for position in window if (row, position) not in cuts}
        assert {position for cut_row, position in cuts if cut_row == row} <= window
        of_range = [(first, last) for segment_row, first, last in segments if segment_row == row]
        assert [position for first, last in of_range for position in range(first, last)] == sorted(inside)
        assert all(before < after for (_, before), (after, _) in pairwise(of_range))
        # the same by ends
        by_end = list_end_positions(windows)
        first, last = int(windows.first[row]), int(windows.last_by_end[row])
        if window:
            assert inside == {p for p in range(len(calls)) if p >= first and by_end[p] < last}
    assert sorted(list_end_positions(windows)) == list(range(len(calls)))


@settings(max_examples=200, deadline=None)
@given(interval_lists(15), interval_lists(6))
def test_calls_that_follow_each_other_are_never_cut(ranges: list[Interval], calls: list[Interval]) -> None:
    """As on a thread: windows are exact without cuts, which would cost time."""
    clocks: dict[int, int] = {}
    following = []
    for owner, start, end in sorted(calls):
        begin = max(start, clocks.get(owner, start))
        clocks[owner] = begin + end - start
        following.append((owner, begin, clocks[owner]))
    windows = find_interval_windows(ranges, following)
    assert len(windows.cut_range) == 0
    assert list_end_positions(windows) == list(range(len(calls)))


@pytest.mark.parametrize(
    ("call", "inside"),
    [
        ((0, 10, 20), True),
        ((0, 10, 10), True),
        ((0, 20, 20), True),
        ((0, 12, 13), True),
        ((0, 9, 20), False),
        ((0, 10, 21), False),
        ((0, 9, 9), False),
        ((0, 21, 21), False),
        ((1, 12, 13), False),
    ],
)
def test_edges_are_inside(call: Interval, inside: bool) -> None:
    windows = find_interval_windows([(0, 10, 20)], [call])
    assert [len(column) for column in split_windows(windows)] == [int(inside)] * 3


def test_a_call_is_cut_out_of_every_range_that_ends_in_it() -> None:
    """Calls of two threads: the second runs from within the first to after the third."""
    windows = find_interval_windows(
        [(0, 0, 25), (0, 0, 50), (0, 22, 24)], [(0, 1, 9), (0, 5, 30), (0, 21, 24)]
    )
    assert (windows.cut_range.tolist(), windows.cut_position.tolist()) == ([0], [1])
    assert [column.tolist() for column in split_windows(windows)] == [[0, 0, 1], [0, 2, 0], [1, 3, 3]]


def test_nothing_in_nothing_out() -> None:
    for ranges, calls in (([], []), ([(0, 1, 2)], []), ([], [(0, 1, 2)])):
        windows = find_interval_windows(ranges, calls)
        assert windows.first.tolist() == windows.last.tolist()
        assert all(len(column) == 0 for column in split_windows(windows))
