"""Ancestors and nesting of rows, against definitions in plain loops; parents that form a cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays import intervals as nesting
from nsys_pp.arrays.intervals import (
    count_ancestors,
    find_parents,
    find_previous_reaching,
    find_unmarked,
    has_marked_line,
)
from tests.projection.definition import parent_of


def climb(parent: list[int], row: int) -> list[int] | None:
    """Return the ancestors of a row; None where they are endless."""
    line: list[int] = []
    while (row := parent[row]) >= 0:
        if len(line) > len(parent):
            return None
        line.append(row)
    return line


@given(
    parent=st.lists(st.integers(-1, 11), max_size=12).map(
        lambda parents: [min(at, len(parents) - 1) for at in parents]
    ),
    marks=st.sets(st.integers(0, 11)),
)
def test_all_functions_are_their_definitions_or_refuse_cycles(parent: list[int], marks: set[int]) -> None:
    rows, marked = np.array(parent, dtype=np.int64), np.isin(np.arange(len(parent)), list(marks))
    lines = [climb(parent, row) for row in range(len(parent))]
    if any(line is None for line in lines):
        with pytest.raises(ValueError, match="form a cycle"):
            count_ancestors(rows)
        return
    found = [line for line in lines if line is not None]
    assert count_ancestors(rows).tolist() == [len(line) for line in found]
    expected = [bool(marked[[row, *line]].any()) for row, line in enumerate(found)]
    assert has_marked_line(rows, marked).tolist() == expected
    nearest = [next((at for at in line if not marked[at]), -1) for line in found]
    assert find_unmarked(rows, marked).tolist() == nearest


@pytest.mark.parametrize(
    "climb_all",
    [
        count_ancestors,
        lambda parent: has_marked_line(parent, parent > 10**9),
        lambda parent: find_unmarked(parent, parent < 10**9),
    ],
)
def test_deep_lines_are_no_cycles_and_long_cycles_are(climb_all: Callable[[Any], Any]) -> None:
    line = np.arange(-1, 100_000)
    climb_all(line)
    line[0] = len(line) - 1
    with pytest.raises(ValueError, match="form a cycle"):
        climb_all(line)


Interval = tuple[int, int, int]  # owner, start, end


intervals = st.lists(
    st.tuples(st.sampled_from([5, -3, 1 << 60]), st.integers(-9, 9), st.integers(0, 9)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=25,
)


def nest(slices: list[Interval]) -> tuple[list[int], list[int]]:
    parent, depth = find_parents(*np.array(slices, dtype=np.int64).reshape(-1, 3).T)
    return parent.tolist(), depth.tolist()


@settings(max_examples=400, deadline=None)
@given(intervals)
def test_the_parent_is_the_innermost_around(slices: list[Interval]) -> None:
    rows = [
        {"range_id": row, "thread_key": owner, "start_ns": start, "end_ns": end}
        for row, (owner, start, end) in enumerate(slices)
    ]
    parents = [parent_of(row, rows) for row in rows]
    parent, depth = nest(slices)
    assert parent == [-1 if row is None else row["range_id"] for row in parents]
    for row, above in enumerate(parent):
        assert depth[row] == (0 if above < 0 else depth[above] + 1)


@pytest.mark.parametrize(
    ("slices", "parent"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(0, 0, 9), (0, 2, 4)], [-1, 0], id="inside"),
        pytest.param([(0, 2, 4), (0, 0, 9)], [1, -1], id="any order"),
        pytest.param([(0, 0, 9), (1, 2, 4)], [-1, -1], id="another thread"),
        pytest.param([(0, 0, 5), (0, 3, 9)], [-1, -1], id="crossing is not containing"),
        pytest.param([(0, 0, 5), (0, 5, 9)], [-1, -1], id="touching is not containing"),
        pytest.param([(0, 0, 9), (0, 0, 4)], [-1, 0], id="equal starts"),
        pytest.param([(0, 0, 9), (0, 4, 9)], [-1, 0], id="equal ends"),
        pytest.param([(0, 0, 9), (0, 0, 9), (0, 0, 9)], [-1, 0, 1], id="equal ranges nest by row"),
        pytest.param([(0, 3, 3), (0, 3, 3)], [-1, 0], id="equal instants, too"),
        pytest.param([(0, 0, 5), (0, 5, 5), (0, 5, 9)], [-1, 2, -1], id="an instant on an edge"),
        pytest.param([(0, 0, 9), (0, 1, 5), (0, 3, 8), (0, 4, 6)], [-1, 0, 0, 2], id="among crossing ones"),
    ],
)
def test_cases(slices: list[Interval], parent: list[int]) -> None:
    assert nest(slices)[0] == parent


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=40), st.integers(1, 40))
def test_the_nearest_that_reaches_is_found_both_ways(values: list[int], group: int) -> None:
    """By pointer jumping and in the tree of maxima, within groups of a random size."""
    array, rows = np.array(values, dtype=np.int64), np.arange(len(values))
    nearest = [
        next((at for at in range(row - 1, -1, -1) if values[at] >= values[row]), -1) for row in rows.tolist()
    ]
    first = rows // group * group
    expected = [near if near >= low else -1 for near, low in zip(nearest, first.tolist(), strict=True)]
    assert nesting._search_tree(array, rows, array).tolist() == nearest
    assert find_previous_reaching(array, first).tolist() == expected


def test_ranges_after_a_deep_nest() -> None:
    """A naive search would visit every nested range for each of them."""
    depth, count = 3_000, 100
    nested = [(0, level, 3 * depth - level) for level in range(depth)]
    after = [(0, 4 * depth + 10 * row, 4 * depth + 10 * row + 5) for row in range(count)]
    parent, levels = nest([*nested, *after, (0, depth, depth + 5)])
    assert parent == [*range(-1, depth - 1), *[-1] * count, depth - 1]
    assert levels == [*range(depth), *[0] * count, depth]
