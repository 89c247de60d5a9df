"""Columns as arrays and back, against their definition."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.columns import (
    as_numbers,
    is_among,
    numbers,
)
from nsys_pp.arrays.names import is_named, natural_key
from nsys_pp.arrays.search import (
    find_equal_rows,
    find_first,
    find_last,
    number_rows,
    order_rows,
)
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS
from tests.cli.calls import REPORTS, succeed

values = st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(1 << 60), 1 << 60)))


@settings(deadline=None, max_examples=50)
@given(values)
def test_null_comes_back_as_null(some: list[int | None]) -> None:
    assert as_numbers("step", numbers(pl.Series("step", some, pl.Int64))).to_list() == some


def test_words_have_the_numbers_of_their_places() -> None:
    words = pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["a", "b", "c"]))
    assert numbers(words, null=-1).tolist() == [1, -1, 0, 1]


@given(st.lists(st.sampled_from(JOB_KINDS)))
def test_words_are_among_some_if_they_are(kinds: list[str]) -> None:
    chosen = ("send", "other")
    assert is_among(pl.Series(kinds, dtype=JOB_KIND), chosen).tolist() == [kind in chosen for kind in kinds]


names = st.lists(st.one_of(st.none(), st.sampled_from(["gemm", "SendRecv", "ncclSend_Recv", "adam"])))


@settings(deadline=None, max_examples=50)
@given(names)
def test_names_contain_the_pattern(values: list[str | None]) -> None:
    mask = is_named(pl.Series(values, dtype=pl.Categorical()), "(?i)send_?recv").tolist()
    assert mask == [name is not None and re.search("(?i)send_?recv", name) is not None for name in values]


NEAR = st.integers(-3, 6)


FAR = st.integers(-(1 << 62), (1 << 62) - 1)  # span too much for one number of group and value


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 3), NEAR), max_size=12),
        st.lists(st.tuples(st.integers(0, 3), st.one_of(NEAR, FAR)), max_size=12),
    )
)
@settings(deadline=None, max_examples=100)
def test_rows_are_ordered_by_group_and_value_stably(rows: list[tuple[int, int]]) -> None:
    assert order_rows(*columns(rows)).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


# up to 40 groups: more than are scanned one by one
EVENTS = st.lists(
    st.tuples(st.one_of(st.integers(-1, 2), st.integers(-1, 40)), st.one_of(st.integers(-5, 5), FAR)),
    max_size=60,
)


@given(st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-2, 2), FAR)] * 3)))
def test_distinct_rows_are_numbered_in_order_of_appearance(rows: list[tuple[int | None, ...]]) -> None:
    assert_rows_are_numbered(rows)


def test_rows_with_the_same_hash_stay_distinct() -> None:
    rows = [
        (0, 0, 12345),
        (1, 0, 2835158548275073283),
        (-1, 2, 2191446695198434895),
        (5, -2, -1139519200861549715),
    ]
    assert_rows_are_numbered([*rows, *rows[::-1], (0, 0, 7)])


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
    assert find_equal_rows(own, other).tolist() == [rows.index(row) if row in rows else -1 for row in wanted]


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


NINES = "9" * 5000  # Python converts no text of more than 4,300 digits to a number


def test_numbers_of_any_length() -> None:
    names = [f"node{NINES}a", f"node{NINES}", "node10", "node2", "node", NINES, ""]
    assert sorted(names, key=natural_key) == ["", NINES, "node", "node2", "node10", *sorted(names[:2])]


def test_names_of_machines_of_any_length(tmp_path: Path) -> None:
    paths = []
    for number, report in enumerate(REPORTS[2:]):
        path = Path(shutil.copy(report, tmp_path / f"{number}.sqlite"))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'",
                [f"node{number}{NINES}"],
            )
            assert connection.execute("SELECT changes()").fetchone() == (1,)
        paths.append(path)
    for command in (["pipeline"], ["summary"]):
        succeed(*command, *paths)
