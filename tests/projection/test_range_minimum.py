"""Minima of windows against plain loops, for both algorithms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.projection import range_minimum
from nsys_pp.projection.range_minimum import find_minimum


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    values = draw(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 3), min_size=1, max_size=40))
    first = st.integers(0, len(values) - 1)
    pairs = draw(st.lists(st.tuples(first, st.integers(1, len(values))), max_size=30))
    return values, [(start, min(start + size, len(values))) for start, size in pairs]


@pytest.mark.parametrize("direct_reads", [0, 1, 10**9])
@given(case=windows())
def test_minima_are_those_of_a_loop(direct_reads: int, case: tuple[list[int], list[tuple[int, int]]]) -> None:
    values, pairs = case
    first, last = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_minimum, "_DIRECT_READS", direct_reads)
        minima = find_minimum(np.array(values), first, last)
    assert minima.tolist() == [min(values[low:high]) for low, high in pairs]


def test_the_input_is_left_alone() -> None:
    values = np.arange(100)[::-1].copy()
    find_minimum(values, np.zeros(1000, dtype=np.int64), np.full(1000, 100))
    assert values.tolist() == list(range(100))[::-1]
