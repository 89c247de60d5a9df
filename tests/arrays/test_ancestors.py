"""Ancestors: definitions in plain loops, and parents that form a cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.arrays.ancestors import (
    check_forest,
    count_ancestors,
    find_unmarked,
    has_marked_line,
)

PARENTS = st.lists(st.integers(-1, 11), max_size=12).map(
    lambda parents: [min(at, len(parents) - 1) for at in parents]
)


def climb(parent: list[int], row: int) -> list[int] | None:
    """Return the ancestors of a row; None where they are endless."""
    line: list[int] = []
    while (row := parent[row]) >= 0:
        if len(line) > len(parent):
            return None
        line.append(row)
    return line


@given(parent=PARENTS, marks=st.sets(st.integers(0, 11)))
def test_all_functions_are_their_definitions_or_refuse_cycles(parent: list[int], marks: set[int]) -> None:
    rows, marked = np.array(parent, dtype=np.int64), np.isin(np.arange(len(parent)), list(marks))
    lines = [climb(parent, row) for row in range(len(parent))]
    if any(line is None for line in lines):
        with pytest.raises(ValueError, match="form a cycle"):
            count_ancestors(rows)
        with pytest.raises(ValueError, match="form a cycle"):
            check_forest(rows)
        return
    found = [line for line in lines if line is not None]
    check_forest(rows)
    assert count_ancestors(rows).tolist() == [len(line) for line in found]
    expected = [bool(marked[[row, *line]].any()) for row, line in enumerate(found)]
    assert has_marked_line(rows, marked).tolist() == expected
    nearest = [next((at for at in line if not marked[at]), -1) for line in found]
    assert find_unmarked(rows, marked).tolist() == nearest


@pytest.mark.parametrize(
    "climb_all",
    [
        count_ancestors,
        check_forest,
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
