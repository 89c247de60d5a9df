"""Columns as arrays and back, against their definition."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.columns import (
    as_numbers,
    as_whole_numbers,
    gather_rows,
    is_among,
    keep_rows,
    numbers,
    pack,
    whole_numbers,
)
from nsys_pp.arrays.names import is_matched, is_named, natural_key
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
from nsys_pp.frames.conform import NAME, build_schema
from nsys_pp.frames.training import JOB_KIND, JOB_KINDS
from tests.cli.calls import call

values = st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(1 << 60), 1 << 60)))


packed_values = st.one_of(st.integers(-2, 2), st.integers(0, 1 << 60), st.integers(-(1 << 62), 1 << 62))


@settings(deadline=None, max_examples=50)
@given(values)
def test_null_comes_back_as_null(some: list[int | None]) -> None:
    series = pl.Series("step", some, pl.Int64)
    assert as_numbers("step", numbers(series)).to_list() == some


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.integers(0, 9))))
def test_null_is_whatever_number_is_asked_for(some: list[int | None]) -> None:
    series = pl.Series("rank", some, pl.UInt32)
    whole = numbers(series, null=-1)
    assert whole.tolist() == [-1 if one is None else one for one in some]
    assert as_numbers("rank", whole, dtype=pl.UInt32, null=-1).equals(series, check_dtypes=True)


def test_words_have_the_numbers_of_their_places() -> None:
    words = pl.Series(["b", None, "a", "b"], dtype=pl.Enum(["a", "b", "c"]))
    assert numbers(words, null=-1).tolist() == [1, -1, 0, 1]


@given(st.lists(st.sampled_from(JOB_KINDS)))
def test_words_are_among_some_if_they_are(kinds: list[str]) -> None:
    chosen = ("send", "other")
    assert is_among(pl.Series(kinds, dtype=JOB_KIND), chosen).tolist() == [kind in chosen for kind in kinds]


@given(st.lists(st.tuples(*[packed_values] * 3), max_size=8))
@settings(deadline=None, max_examples=200)
@example([(0, 1 << 62, 0), (1 << 60, -(1 << 62), 1), (0, -(1 << 62), 1 << 62)])
def test_packed_numbers_are_equal_where_all_columns_are(rows: list[tuple[int, int, int]]) -> None:
    packed = pack(*np.array(rows, np.int64).reshape(-1, 3).T).tolist()
    assert len(packed) == len(rows)
    for one, number in zip(rows, packed, strict=True):
        for other, beside in zip(rows, packed, strict=True):
            assert (one == other) == (number == beside)


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt32])
def test_whole_numbers_and_back(dtype: type[pl.DataType]) -> None:
    for values in ([], [3, None, 0], [None, None], [5]):
        series = pl.Series(values, dtype=dtype)
        assert whole_numbers(series).tolist() == [-1 if value is None else value for value in values]
        assert as_whole_numbers(whole_numbers(series), dtype).equals(series, check_dtypes=True)


names = st.lists(st.one_of(st.none(), st.sampled_from(["gemm", "SendRecv", "ncclSend_Recv", "adam"])))


@settings(deadline=None, max_examples=50)
@given(names)
def test_names_contain_the_pattern(values: list[str | None]) -> None:
    mask = is_named(pl.Series(values, dtype=pl.Categorical()), "(?i)send_?recv").tolist()
    assert mask == [name is not None and re.search("(?i)send_?recv", name) is not None for name in values]


@given(st.lists(st.one_of(st.none(), st.integers(0, 9))), st.data())
def test_gathered_rows_are_null_without_a_row(some: list[int | None], data: st.DataObject) -> None:
    frame = pl.DataFrame(
        {"rank": some, "name": [str(one) for one in some]}, schema={"rank": pl.Int64, "name": NAME}
    )
    row = data.draw(st.lists(st.integers(-1, len(some) - 1)))
    taken = gather_rows(frame, ("name", "rank"), np.array(row, dtype=np.int64))
    assert taken.rows() == [(None, None) if one < 0 else (str(some[one]), some[one]) for one in row]
    assert taken.schema == build_schema({"name": NAME, "rank": pl.Int64})


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_rows_of_a_mask_are_those_that_a_query_keeps(some: list[tuple[int, bool]]) -> None:
    frame = pl.DataFrame(some, schema={"step": pl.Int64, "is_kept": pl.Boolean}, orient="row")
    mask = frame["is_kept"].to_numpy()
    assert keep_rows(frame, mask).equals(frame.filter("is_kept"))


def test_names_that_match_are_those_of_a_query() -> None:
    texts = ["ncclSend", None, "gemm", "ncclSend", "NCCL", "xnccl"]
    names = pl.Series("name", texts, NAME)
    for pattern in ("^nccl", "(?i)nccl$", "gemm|Send"):
        expected = pl.Series(texts).str.contains(pattern).fill_null(value=False)
        assert is_matched(names, pattern).tolist() == expected.to_list()
        assert is_named(names, pattern).tolist() == expected.to_list()
    assert is_matched(names[:0], "^nccl").tolist() == []


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


NINES = "9" * 5000  # Python converts no text of more than 4,300 digits to a number


REPORTS = sorted((Path(__file__).parents[2] / "fixtures" / "pipeline").rglob("*.sqlite"))[:2]


def test_numbers_of_any_length() -> None:
    names = [f"node{NINES}a", f"node{NINES}", "node10", "node2", "node", NINES, ""]
    assert sorted(names, key=natural_key) == ["", NINES, "node", "node2", "node10", *sorted(names[:2])]


def test_names_of_machines_of_any_length(tmp_path: Path) -> None:
    paths = []
    for number, report in enumerate(REPORTS):
        path = Path(shutil.copy(report, tmp_path / f"{number}.sqlite"))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'",
                [f"node{number}{NINES}"],
            )
            assert connection.execute("SELECT changes()").fetchone() == (1,)
        paths.append(path)
    for command in (["pipeline"], ["summary"]):
        done = call(*command, *paths)
        assert done.code == 0, done.stderr
