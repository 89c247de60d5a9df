"""Which calls lie in which range, against plain loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.projection.windows import Windows, find_windows, split_windows

Interval = tuple[int, int, int]  # owner, start, end


def lists(most_length: int) -> st.SearchStrategy[list[Interval]]:
    one = st.tuples(st.sampled_from([-7, 0, 1 << 60]), st.integers(-10, 10), st.integers(0, most_length))
    return st.lists(one.map(lambda one: (one[0], one[1], one[1] + one[2])), max_size=20)


def find(ranges: list[Interval], calls: list[Interval]) -> Windows:
    columns = (
        *np.array(ranges, dtype=np.int64).reshape(-1, 3).T,
        *np.array(calls, dtype=np.int64).reshape(-1, 3).T,
    )
    return find_windows(*columns)


def is_inside(call: Interval, one: Interval) -> bool:
    return call[0] == one[0] and one[1] <= call[1] and call[2] <= one[2]


@settings(max_examples=500, deadline=None)
@given(lists(15), lists(6))
def test_windows_hold_the_calls_inside_and_no_other(ranges: list[Interval], calls: list[Interval]) -> None:
    calls.sort()
    windows = find(ranges, calls)
    cuts = set(zip(windows.cut_range.tolist(), windows.cut_position.tolist(), strict=True))
    pieces = list(zip(*(column.tolist() for column in split_windows(windows)), strict=True))
    assert pieces == sorted(pieces)
    for row, one in enumerate(ranges):
        inside = {position for position, call in enumerate(calls) if is_inside(call, one)}
        window = set(range(int(windows.first[row]), int(windows.last[row])))
        assert inside == {position for position in window if (row, position) not in cuts}
        assert {position for piece, position in cuts if piece == row} <= window
        mine = [(first, last) for piece, first, last in pieces if piece == row]
        assert [position for first, last in mine for position in range(first, last)] == sorted(inside)
        assert all(before < after for (_, before), (after, _) in pairwise(mine))
        # the same by ends
        by_end = windows.end_position.tolist()
        first, last = int(windows.first[row]), int(windows.last_by_end[row])
        if window:
            assert inside == {p for p in range(len(calls)) if p >= first and by_end[p] < last}
    assert sorted(windows.end_position.tolist()) == list(range(len(calls)))


@settings(max_examples=200, deadline=None)
@given(lists(15), lists(6))
def test_calls_that_follow_each_other_are_never_cut(ranges: list[Interval], calls: list[Interval]) -> None:
    """As on a thread; windows are exact without cuts, which would cost."""
    clocks: dict[int, int] = {}
    following = []
    for owner, start, end in sorted(calls):
        begin = max(start, clocks.get(owner, start))
        clocks[owner] = begin + end - start
        following.append((owner, begin, clocks[owner]))
    windows = find(ranges, following)
    assert len(windows.cut_range) == 0
    assert windows.end_position.tolist() == list(range(len(calls)))


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
    windows = find([(0, 10, 20)], [call])
    assert [len(column) for column in split_windows(windows)] == [int(inside)] * 3


def test_a_call_is_cut_out_of_every_range_that_ends_in_it() -> None:
    """Calls of two threads: the second runs from within the first to after the third."""
    windows = find([(0, 0, 25), (0, 0, 50), (0, 22, 24)], [(0, 1, 9), (0, 5, 30), (0, 21, 24)])
    assert (windows.cut_range.tolist(), windows.cut_position.tolist()) == ([0], [1])
    assert [column.tolist() for column in split_windows(windows)] == [[0, 0, 1], [0, 2, 0], [1, 3, 3]]


def test_nothing_in_nothing_out() -> None:
    for ranges, calls in (([], []), ([(0, 1, 2)], []), ([], [(0, 1, 2)])):
        windows = find(ranges, calls)
        assert windows.first.tolist() == windows.last.tolist()
        assert all(len(column) == 0 for column in split_windows(windows))
