"""What comes last and first among things of a group, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.training.report.nearest import find_first, find_last

POINTS = st.lists(st.tuples(st.integers(-1, 2), st.integers(-5, 5)), max_size=12)


@settings(deadline=None, max_examples=100)
@given(asking=POINTS, things=POINTS.map(lambda points: sorted(points, key=lambda point: point[1])))
def test_the_nearest_is_that_of_a_search_through_all(
    asking: list[tuple[int, int]], things: list[tuple[int, int]]
) -> None:
    columns = [
        np.array([point[at] for point in points], dtype=np.int64)
        for points in (asking, things)
        for at in (0, 1)
    ]
    last, before, first = [], [], []
    for group, time in asking:
        own = [(place, at) for place, (of, at) in enumerate(things) if of == group]
        last.append(max((place for place, at in own if at <= time), default=-1))
        before.append(max((place for place, at in own if at < time), default=-1))
        first.append(min((place for place, at in own if at >= time), default=-1))
    assert find_last(*columns).tolist() == last
    assert find_last(*columns, is_before=True).tolist() == before
    assert find_first(*columns).tolist() == first
