"""Order of rows and searches, against definitions in plain loops."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays import search
from nsys_pp.arrays.search import (
    combine_keys,
    find_equal_rows,
    find_first,
    find_last,
    find_pairs,
    find_rows,
    number_rows,
    order_rows,
)

NEAR = st.integers(-3, 6)
FAR = st.integers(-(1 << 62), (1 << 62) - 1)  # span too much for one number of group and value
ROWS = st.one_of(
    st.lists(st.tuples(st.integers(0, 3), NEAR), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(NEAR, FAR)), max_size=12),
)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_combined_keys_sort_by_group_and_value(rows: list[tuple[int, int]]) -> None:
    keys = combine_keys(*columns(rows)).tolist()
    for row, key in zip(rows, keys, strict=True):
        for other_row, other_key in zip(rows, keys, strict=True):
            assert (row < other_row) == (key < other_key)


@given(ROWS)
@settings(deadline=None, max_examples=100)
def test_rows_are_ordered_by_group_and_value_stably(rows: list[tuple[int, int]]) -> None:
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    assert order_rows(*columns(rows)).tolist() == expected


# up to 40 groups: more than are scanned one by one
EVENTS = st.lists(
    st.tuples(st.one_of(st.integers(-1, 2), st.integers(-1, 40)), st.one_of(st.integers(-5, 5), FAR)),
    max_size=60,
)


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9)))
def test_rows_of_ids(ids: list[int], wanted: list[int]) -> None:
    rows = find_rows(np.array(ids, dtype=np.int64), np.array(wanted, dtype=np.int64)).tolist()
    assert rows == [ids.index(wanted_id) if wanted_id in ids else -1 for wanted_id in wanted]


TRIPLES = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-2, 2), FAR)] * 3))


@given(TRIPLES)
def test_distinct_rows_are_numbered_in_order_of_appearance(rows: list[tuple[int | None, ...]]) -> None:
    assert_rows_are_numbered(rows)


@given(TRIPLES)
@settings(deadline=None, max_examples=50)
def test_rows_with_the_same_hash_stay_distinct(rows: list[tuple[int | None, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_MULTIPLIER", np.uint64(0))
        patch.setattr(search, "_SHIFT", np.uint64(63))
        assert_rows_are_numbered(rows)


def assert_rows_are_numbered(rows: list[tuple[int | None, ...]]) -> None:
    distinct = list(dict.fromkeys(rows))
    first, number = number_rows([pl.Series([row[at] for row in rows], dtype=pl.Int64) for at in range(3)])
    assert first.tolist() == [rows.index(row) for row in distinct]
    assert number.tolist() == [distinct.index(row) for row in rows]


NUMBERS = st.lists(st.tuples(*[st.integers(-2, 2) | FAR] * 3))


@given(NUMBERS, NUMBERS)
@settings(deadline=None, max_examples=100)
def test_equal_rows_are_found_at_their_first_row(
    rows: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
) -> None:
    wanted = [*wanted, *rows[::2]]
    own, other = (
        [np.array([row[at] for row in table], dtype=np.int64) for at in range(3)] for table in (rows, wanted)
    )
    expected = [rows.index(row) if row in rows else -1 for row in wanted]
    assert find_equal_rows(own, other).tolist() == expected


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
