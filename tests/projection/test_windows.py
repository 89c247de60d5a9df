"""Windows of calls inside ranges, against plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.projection.windows import Windows, find_windows, split_windows

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


def list_end_positions(windows: Windows, calls: list[Interval]) -> list[int]:
    return list(range(len(calls))) if windows.end_position is None else windows.end_position.tolist()


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
        by_end = list_end_positions(windows, calls)
        first, last = int(windows.first[row]), int(windows.last_by_end[row])
        if window:
            assert inside == {p for p in range(len(calls)) if p >= first and by_end[p] < last}
    assert sorted(list_end_positions(windows, calls)) == list(range(len(calls)))


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
    assert list_end_positions(windows, calls) == list(range(len(calls)))


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
