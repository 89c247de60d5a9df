"""Groups of clocks, and what messages say of them, held to their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.alignment.fit import find_groups
from nsys_pp.alignment.solution import bound_groups_by_messages

observations = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), max_size=30)


@given(observations)
def test_groups_are_the_connected_clocks(seen: list[tuple[int, int]]) -> None:
    clock, instance = (np.array([pair[i] for pair in seen], dtype=np.int64) for i in (0, 1))
    group = find_groups(clock, instance, 8)
    together = {(a, a) for a in range(8)}
    for (a, i), (b, j) in itertools.product(seen, seen):
        if i == j:
            together.add((a, b))
    for k, a, b in itertools.product(range(8), range(8), range(8)):
        if (a, k) in together and (k, b) in together:
            together.add((a, b))
    assert all(((a, b) in together) == (group[a] == group[b]) for a in range(8) for b in range(8))
    sizes = np.bincount(group)
    assert (np.diff(sizes) <= 0).all()


clocks_of_messages = st.tuples(st.integers(0, 5), st.integers(0, 5))
messages = st.lists(
    st.tuples(
        clocks_of_messages,
        st.integers(-5, 100_000),
        st.integers(-9_000, 9_000) | st.sampled_from([90_000, math.nan]),
    ),
    max_size=9,
).flatmap(lambda few: st.integers(1, 9).map(lambda repeats: few * repeats))


@given(messages)
def test_reach_is_the_shortest_way_over_messages_in_both_directions_or_ended_together(
    sent: list[tuple[tuple[int, int], int, int]],
) -> None:
    sender, receiver = (np.array([row[0][i] for row in sent], dtype=np.int64) for i in range(2))
    slack, apart = (np.array([row[i] for row in sent], dtype=np.float64) for i in (1, 2))
    reach = bound_groups_by_messages(sender, receiver, slack, apart, np.arange(6))
    width = {}
    for a, b in itertools.product(range(6), range(6)):
        there = [max(0, s) for clocks, s, _ in sent if clocks == (a, b)]
        back = [max(0, s) for clocks, s, _ in sent if clocks == (b, a)]
        width[a, b] = max(min(there), min(back)) if there and back else math.inf
        apart_ns = [abs(ns) for clocks, _, ns in sent if clocks in ((a, b), (b, a)) and not math.isnan(ns)]
        if len(apart_ns) >= 8 and a != b and (largest := np.quantile(apart_ns, 0.95)) <= 20_000:
            width[a, b] = min(width[a, b], 2 * largest)
    shortest = [0.0 if a == 0 else math.inf for a in range(6)]
    for _ in range(6):
        shortest = [min([shortest[b], *(shortest[a] + width[a, b] for a in range(6))]) for b in range(6)]
    assert reach.tolist() == shortest
