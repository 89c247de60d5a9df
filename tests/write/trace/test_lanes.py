"""Lanes against their definition in plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.write.trace.lanes import MAX_DEPTH, nest_order, pack_flat, pack_nested

Interval = tuple[int, int]
intervals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=30
)


def first_fit(slices: list[Interval]) -> list[int]:
    """Each slice, by start, takes the lowest lane whose last slice has ended."""
    lanes: list[int] = [0] * len(slices)
    ends: list[int] = []
    for row in sorted(range(len(slices)), key=lambda row: (*slices[row], row)):
        start, end = slices[row]
        lane = next((lane for lane, last in enumerate(ends) if last <= start), len(ends))
        ends[lane : lane + 1] = [end]
        lanes[row] = lane
    return lanes


@settings(max_examples=400, deadline=None)
@given(intervals)
def test_flat_lanes_are_first_fit(slices: list[Interval]) -> None:
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    lanes = pack_flat(start, end).tolist()
    by_lane = {lane: sorted(s for s, at in zip(slices, lanes, strict=True) if at == lane) for lane in lanes}
    expected = first_fit(slices)
    assert {
        lane: sorted(s for s, at in zip(slices, expected, strict=True) if at == lane) for lane in expected
    } == by_lane


def replay(
    start: np.ndarray, end: np.ndarray, order: np.ndarray, lane: np.ndarray, depth: np.ndarray
) -> list[int]:
    """Open and close slices as a viewer does, in order of writing; returns the slice around each."""
    around = [-1] * len(start)
    stack: list[int] = []
    now: tuple[int, float] = (-1, 0)
    for row in order.tolist():
        if lane[row] != now[0]:
            stack, now = [], (int(lane[row]), -np.inf)
        while len(stack) > depth[row]:
            now = (now[0], max(now[1], end[stack.pop()]))
        assert len(stack) == depth[row]
        assert now[1] <= start[row], "a slice begins before what was written before it has ended"
        assert not stack or end[row] <= end[stack[-1]], "a slice outlives the one around it"
        around[row] = stack[-1] if stack else -1
        stack.append(row)
        now = (now[0], int(start[row]))
    return around


@settings(max_examples=600, deadline=None)
@given(intervals, st.randoms(use_true_random=False))
def test_nested_lanes_nest(slices: list[Interval], random: object) -> None:
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    parent = np.array([random.randint(-1, row - 1) for row in range(len(slices))], dtype=np.int64)  # type: ignore[attr-defined]
    lane, above = pack_nested(start, end, parent)
    order, depth = nest_order(start, end, lane, above)
    assert sorted(order.tolist()) == list(range(len(slices)))
    assert replay(start, end, order, lane, depth) == above.tolist()
    for row, one in enumerate(above.tolist()):
        assert one == -1 or (one == parent[row] and lane[one] == lane[row])


def test_what_nests_stays_in_one_lane() -> None:
    start, end = np.array([0, 0, 4, 4, 10]), np.array([10, 4, 10, 6, 12])
    lane, above = pack_nested(start, end, np.array([-1, 0, 0, 2, -1]))
    assert lane.tolist() == [0] * 5
    assert above.tolist() == [-1, 0, 0, 2, -1]


def test_overlapping_siblings_move_with_what_is_inside_them() -> None:
    start, end = np.array([0, 1, 3, 4]), np.array([10, 6, 9, 5])
    lane, above = pack_nested(start, end, np.array([-1, 0, 0, 2]))
    assert lane.tolist() == [0, 0, 1, 1]
    assert above.tolist() == [-1, 0, -1, 2]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 10_000])
def test_no_lane_is_deeper_than_the_importer_reads(depth: int) -> None:
    start, end = np.arange(depth), 10**6 - np.arange(depth)
    lane, above = pack_nested(start, end, np.arange(-1, depth - 1))
    _, drawn = nest_order(start, end, lane, above)
    assert drawn.max() == MAX_DEPTH - 1
    assert np.bincount(lane).max() == MAX_DEPTH
