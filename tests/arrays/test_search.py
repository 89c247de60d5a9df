"""Searches in arrays, against their definitions in plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.search import find_first, find_last, find_pairs, find_rows
from tests.arrays.grouped_rows import FAR, ROWS, columns

# up to 40 groups: more than are scanned one by one
EVENTS = st.lists(
    st.tuples(st.one_of(st.integers(-1, 2), st.integers(-1, 40)), st.one_of(st.integers(-5, 5), FAR)),
    max_size=60,
)


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9)))
def test_rows_of_ids(ids: list[int], wanted: list[int]) -> None:
    rows = find_rows(np.array(ids, dtype=np.int64), np.array(wanted, dtype=np.int64)).tolist()
    assert rows == [ids.index(wanted_id) if wanted_id in ids else -1 for wanted_id in wanted]


@given(ROWS, ROWS)
@settings(deadline=None, max_examples=100)
def test_pairs_are_found_at_their_first_row(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    wanted = [*wanted, *rows[::2]]
    expected = [rows.index(pair) if pair in rows else -1 for pair in wanted]
    assert find_pairs(*columns(rows), *columns(wanted)).tolist() == expected


@settings(deadline=None, max_examples=100)
@given(wanted=EVENTS, events=EVENTS.map(lambda events: sorted(events, key=lambda event: event[1])))
def test_the_nearest_event_is_that_of_a_search_through_all(
    wanted: list[tuple[int, int]], events: list[tuple[int, int]]
) -> None:
    last, before, first = [], [], []
    for group, time in wanted:
        own = [
            (row, event_time) for row, (event_group, event_time) in enumerate(events) if event_group == group
        ]
        last.append(max((row for row, event_time in own if event_time <= time), default=-1))
        before.append(max((row for row, event_time in own if event_time < time), default=-1))
        first.append(min((row for row, event_time in own if event_time >= time), default=-1))
    both = (*columns(wanted), *columns(events))
    assert find_last(*both).tolist() == last
    assert find_last(*both, is_before=True).tolist() == before
    assert find_first(*both).tolist() == first
