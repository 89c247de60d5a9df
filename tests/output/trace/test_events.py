"""Begin and end events against a walk with a stack."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.output.trace.packing import order_events
from tests.output.drawings import random_slices


@given(st.integers(0, 2**32))
def test_events_are_those_of_a_walk(seed: int) -> None:
    rows = random_slices(random.Random(seed)).select("start_ns", "end_ns", "depth")
    times: list[int] = []
    places: list[int] = []
    open_ends: list[int] = []
    for start, end, depth in rows.iter_rows():
        while len(open_ends) > depth:
            times.append(open_ends.pop())
        places.append(len(times))
        times.append(start)
        open_ends.append(end)
    times += reversed(open_ends)
    columns = [rows[column].to_numpy() for column in rows.columns]
    events = order_events(*columns)
    assert events.times_ns.tolist() == times
    assert events.begin_index.tolist() == places


@pytest.mark.parametrize("depth", [[0, 2], [1], [0, -1], [0, 1, 3]])
def test_depths_that_are_no_tree(depth: list[int]) -> None:
    times = np.zeros(len(depth), dtype=np.int64)
    with pytest.raises(ValueError, match="pre-order"):
        order_events(times, times, np.array(depth, dtype=np.int32))
