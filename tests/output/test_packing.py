"""Subtracks against their definition in plain loops."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.types import Int64s
from nsys_pp.output.trace.packing import MAX_DEPTH, nest_order, pack_flat, pack_nested

Interval = tuple[int, int]


intervals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=30
)


def draw_nested_slices(seed: int) -> tuple[Int64s, Int64s, Int64s]:
    """Draw slices, in any order: start, end, and row of a slice around each, which mostly contains it, or -1."""
    random = np.random.Generator(np.random.PCG64(seed))
    count, last = int(random.integers(0, 40)), int(random.choice([3, 8, 20, 60]))
    start = random.integers(0, last, count)
    end = start + random.integers(0, int(random.choice([3, last + 1])), count)
    parent = np.array([random.integers(-1, row) if row else -1 for row in range(count)], dtype=np.int64)
    for row in np.flatnonzero((parent >= 0) & (random.random(count) < 0.9)).tolist():
        start[row] = random.integers(start[parent[row]], end[parent[row]] + 1)
        end[row] = random.integers(start[row], end[parent[row]] + 1)
    order = random.permutation(count)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    moved = np.array([place[above] if above >= 0 else -1 for above in parent[order]], dtype=np.int64)
    return start[order], end[order], moved


def first_fit(slices: list[Interval]) -> list[int]:
    """Each slice, by start, takes the lowest subtrack whose last slice has ended."""
    subtracks: list[int] = [0] * len(slices)
    ends: list[int] = []
    for row in sorted(range(len(slices)), key=lambda row: (*slices[row], row)):
        start, end = slices[row]
        subtrack = next((subtrack for subtrack, last in enumerate(ends) if last <= start), len(ends))
        ends[subtrack : subtrack + 1] = [end]
        subtracks[row] = subtrack
    return subtracks


@settings(max_examples=150, deadline=None)
@given(intervals)
def test_flat_subtracks_are_first_fit(slices: list[Interval]) -> None:
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    subtracks = pack_flat(start, end).tolist()
    by_subtrack = {
        subtrack: sorted(s for s, at in zip(slices, subtracks, strict=True) if at == subtrack)
        for subtrack in subtracks
    }
    expected = first_fit(slices)
    assert {
        subtrack: sorted(s for s, at in zip(slices, expected, strict=True) if at == subtrack)
        for subtrack in expected
    } == by_subtrack


def pack_by_definition(start: Int64s, end: Int64s, parent: Int64s) -> tuple[list[int], list[int]]:
    """Fill one subtrack after the other.

    Of overlapping children of a slice, the first one stays, with what is inside.
    """
    above = [
        around if around >= 0 and start[around] <= start[row] < end[row] <= end[around] else -1
        for row, around in enumerate(parent.tolist())
    ]
    subtrack = [-1] * len(start)
    rest = sorted(range(len(start)), key=lambda row: (start[row], end[row], row))
    number = 0
    while rest:
        last_end: dict[int, int] = {}
        fits = {}
        for row in rest:
            fits[row] = start[row] >= last_end.get(above[row], -(10**9))
            if fits[row]:
                last_end[above[row]] = end[row]

        def stays(row: int, fits: dict[int, bool] = fits) -> bool:
            return fits[row] and (above[row] < 0 or stays(above[row], fits))

        moved = [row for row in rest if not stays(row)]
        for row in rest:
            if row not in moved:
                subtrack[row] = number
        for row in moved:
            if above[row] >= 0 and subtrack[above[row]] == number:
                above[row] = -1
        rest, number = moved, number + 1
    return subtrack, above


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_nested_subtracks_are_those_of_the_definition(seed: int) -> None:
    start, end, parent = draw_nested_slices(seed)
    subtrack, above = pack_nested(start, end, parent)
    assert (subtrack.tolist(), above.tolist()) == pack_by_definition(start, end, parent)


@pytest.mark.parametrize("overlap", [1, 30, 200])
def test_many_subtracks_are_those_of_the_definition(overlap: int) -> None:
    """More lanes than the first tree of lanes has room for, and long runs of slices that begin together."""
    random = np.random.Generator(np.random.PCG64(overlap))
    start = np.sort(random.integers(0, 400, 600))
    end = start + random.integers(0, 2 * overlap, 600)
    parent = np.maximum(np.arange(600) - random.integers(1, 6, 600), -1)
    subtrack, above = pack_nested(start, end, parent)
    assert (subtrack.tolist(), above.tolist()) == pack_by_definition(start, end, parent)
    assert pack_flat(start, end).tolist() == first_fit([*zip(start.tolist(), end.tolist(), strict=True)])


def replay(
    start: np.ndarray, end: np.ndarray, order: np.ndarray, subtrack: np.ndarray, depth: np.ndarray
) -> list[int]:
    """Open and close slices as a viewer does, in order of writing; returns the slice around each."""
    around = [-1] * len(start)
    stack: list[int] = []
    now: tuple[int, float] = (-1, 0)
    for row in order.tolist():
        if subtrack[row] != now[0]:
            stack, now = [], (int(subtrack[row]), -np.inf)
        while len(stack) > depth[row]:
            now = (now[0], max(now[1], end[stack.pop()]))
        assert len(stack) == depth[row]
        assert now[1] <= start[row], "a slice begins before what was written before it has ended"
        assert not stack or end[row] <= end[stack[-1]], "a slice outlives the one around it"
        around[row] = stack[-1] if stack else -1
        stack.append(row)
        now = (now[0], int(start[row]))
    return around


@settings(max_examples=200, deadline=None)
@given(intervals, st.randoms(use_true_random=False))
def test_nested_subtracks_nest(slices: list[Interval], random: Random) -> None:
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    parent = np.array([random.randint(-1, row - 1) for row in range(len(slices))], dtype=np.int64)
    subtrack, above = pack_nested(start, end, parent)
    order, depth = nest_order(start, end, subtrack, above)
    assert sorted(order.tolist()) == list(range(len(slices)))
    assert replay(start, end, order, subtrack, depth) == above.tolist()
    for row, one in enumerate(above.tolist()):
        assert one == -1 or (one == parent[row] and subtrack[one] == subtrack[row])


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 10_000])
def test_no_subtrack_is_deeper_than_the_importer_reads(depth: int) -> None:
    start, end = np.arange(depth), 10**6 - np.arange(depth)
    subtrack, above = pack_nested(start, end, np.arange(-1, depth - 1))
    _, drawn = nest_order(start, end, subtrack, above)
    assert drawn.max() == MAX_DEPTH - 1
    assert np.bincount(subtrack).max() == MAX_DEPTH
