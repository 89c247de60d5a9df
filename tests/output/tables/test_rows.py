"""Rows of tables: order, first rows, counts of hidden rows, and totals."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.table import AnyTable
from nsys_pp.output.tables.text import arrange_rows, find_sort_column, limit_rows, sort_rows
from tests.output.tables.tables import make_table


def table_of(
    *,
    groups: tuple[str, ...] = (),
    totals: tuple[str, ...] = (),
    is_nested: bool = False,
    is_fixed: bool = False,
) -> AnyTable:
    """Make a table without rows, of which only the columns of groups matter."""
    frame = pl.DataFrame({group: [] for group in groups})
    return make_table(frame, groups=groups, totals=totals, is_nested=is_nested, is_fixed=is_fixed).table


TREE = table_of(is_nested=True)
TIMES = ("count", "total_ns", "fraction", "mean_ns", "min_ns", "name")
SIDES = ("host_total_ns", "gpu_total_ns", "host_mean_ns", "gpu_min_ns", "call_count", "phase")


@pytest.mark.parametrize(
    ("word", "of_times", "of_sides"),
    [
        ("total", "total_ns", "gpu_total_ns"),
        ("total_ns", "total_ns", "gpu_total_ns"),
        ("CPUTotal", "total_ns", "host_total_ns"),
        ("host_total", "total_ns", "host_total_ns"),
        ("GPUTotal", "total_ns", "gpu_total_ns"),
        ("CPUAvg", "mean_ns", "host_mean_ns"),
        ("avg", "mean_ns", "host_mean_ns"),
        ("GPUMin", "min_ns", "gpu_min_ns"),
        ("Min", "min_ns", "gpu_min_ns"),
        ("count", "count", "call_count"),
        ("calls", "count", "call_count"),
        ("name", "name", "phase"),
        ("bytes", None, None),
        ("fraction", "fraction", None),
        ("GPUMax", None, None),
        ("", None, None),
    ],
)
def test_words_of_people_and_of_paddle_find_columns(
    word: str, of_times: str | None, of_sides: str | None
) -> None:
    assert find_sort_column(TIMES, word) == of_times
    assert find_sort_column(SIDES, word) == of_sides


LIST = table_of()


def names_by(column: str, columns: dict[str, list[Any]], table: AnyTable = LIST) -> list[str]:
    return sort_rows(pl.DataFrame(columns), column, table)["name"].to_list()


def test_rows_fall_and_names_and_minima_rise() -> None:
    columns: dict[str, list[Any]] = {
        "max_ns": [1, 3, None, 2],
        "min_ns": [7, None, 5, 6],
        "name": list("bdac"),
    }
    assert names_by("max_ns", columns) == ["d", "c", "b", "a"]
    assert names_by("min_ns", columns) == ["a", "c", "b", "d"]
    assert names_by("name", columns) == ["a", "b", "c", "d"]


def test_groups_keep_their_order() -> None:
    columns: dict[str, list[Any]] = {
        "rank": ["rank 2", "rank 2", "rank 10", "rank 10"],
        "count": [1, 2, 3, 4],
        "name": list("abcd"),
    }
    assert names_by("count", columns, table_of(groups=("rank",))) == ["b", "a", "d", "c"]


def test_parts_stay_below_what_they_are_part_of() -> None:
    names = ["a", "    kernel", "  small", "    x", "    y", "  large", "b"]
    assert names_by("count", {"count": [1, 9, 2, 3, 4, 5, 6], "name": names}, TREE) == [
        *("b", "a", "    kernel", "  large", "  small", "    y", "    x")
    ]


def test_a_name_that_begins_with_a_blank_is_no_part_unless_the_table_is_nested() -> None:
    assert names_by("count", {"count": [1, 2, 3], "name": ["a", " b", "c"]}) == ["c", " b", "a"]


TREES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 1, 2, 3])), min_size=1, max_size=12).map(
    lambda rows: [(0, rows[0][1]), *rows[1:]]
)


@settings(deadline=None, max_examples=100)
@given(TREES)
def test_sorting_a_tree_is_sorting_the_parts_of_each_row(rows: list[tuple[int, int | None]]) -> None:
    names = ["  " * depth + str(number) for number, (depth, _) in enumerate(rows)]
    found = names_by("count", {"count": [value for _, value in rows], "name": names}, TREE)

    def order(first: int, last: int, depth: int) -> list[str]:
        """Sort rows of this depth, each with what is below it; deeper ones before the first of them stay first."""
        heads = [number for number in range(first, last) if rows[number][0] == depth]
        start = heads[0] if heads else last
        before = order(first, start, depth + 1) if start > first else []
        blocks = [
            (rows[head][1], [names[head], *order(head + 1, end, depth + 1)])
            for head, end in zip(heads, [*heads[1:], last], strict=False)
        ]
        blocks.sort(key=lambda block: (block[0] is None, -(block[0] or 0)))
        return before + [name for _, block in blocks for name in block]

    assert found == order(0, len(rows), 0)


def test_what_is_left_out_and_the_total_are_of_all_rows() -> None:
    frame = pl.DataFrame(
        {"count": [4, 3, 2, 1], "fraction": [0.4, 0.3, 0.2, 0.1], "mean_ns": [1.0] * 4, "name": list("abcd")}
    )
    rows = arrange_rows(frame, table_of(totals=("count", "fraction")), limit=1)
    assert rows.kinds == ["row", "rest", "total"]
    assert rows.frame["name"].to_list() == ["a", "… 3 more rows", "total"]
    assert rows.frame["count"].to_list() == [4, 6, 10]
    assert rows.frame["fraction"].to_list() == pytest.approx([0.4, 0.6, 1.0])
    assert rows.frame["mean_ns"].to_list() == [1.0, None, None]


def test_without_a_column_of_shares_the_line_tells_the_share_of_what_is_left_out() -> None:
    frame = pl.DataFrame({"count": [6, 3, 1], "name": list("abc")})
    assert (
        arrange_rows(frame, table_of(totals=("count",)), limit=1).frame["name"][1] == "… 2 more rows, 40.0 %"
    )
    nothing = pl.DataFrame({"count": [0, 0], "name": list("ab")})
    assert arrange_rows(nothing, table_of(totals=("count",)), limit=1).frame["name"][1] == "… 1 more row"


def test_one_row_has_no_total_and_rows_that_overlap_have_none() -> None:
    frame = pl.DataFrame({"count": [1], "name": ["a"]})
    assert arrange_rows(frame, table_of(totals=("count",)), limit=5).kinds == ["row"]
    assert arrange_rows(pl.concat([frame, frame]), table_of(), limit=1).kinds == ["row", "rest"]


def test_what_nobody_knows_does_not_add_up_to_zero() -> None:
    frame = pl.DataFrame(
        {"total_bytes": [None, None], "name": ["a", "b"]}, schema_overrides={"total_bytes": pl.Int64}
    )
    assert (
        arrange_rows(frame, table_of(totals=("total_bytes",)), limit=0).frame["total_bytes"].to_list()
        == [None] * 3
    )


def test_each_group_has_its_first_rows_and_its_total() -> None:
    frame = pl.DataFrame({"rank": ["a", "a", "a", "b", "b"], "count": [3, 2, 1, 5, 5], "name": list("vwxyz")})
    rows = arrange_rows(frame, table_of(groups=("rank",), totals=("count",)), limit=2)
    assert list(zip(rows.groups, rows.kinds, rows.frame["count"], strict=True)) == [
        *[(0, "row", 3), (0, "row", 2), (0, "rest", 1), (0, "total", 6)],
        *[(1, "row", 5), (1, "row", 5), (1, "total", 10)],
    ]
    assert rows.frame["rank"].to_list() == ["a"] * 4 + ["b"] * 3


def test_groups_of_one_row_are_a_list_whose_shares_do_not_add_up() -> None:
    frame = pl.DataFrame(
        {"rank": ["a", "b", "c"], "count": [1, 2, 3], "fraction": [1.0] * 3, "name": list("xyz")}
    )
    rows = arrange_rows(frame, table_of(groups=("rank",), totals=("count", "fraction")), limit=2)
    assert rows.group_columns == ()
    assert rows.frame.select("count", "fraction").rows() == [(1, 1.0), (2, 1.0), (3, None), (6, None)]


def test_of_the_parts_of_rows_a_third_is_shown_and_the_others_are_counted() -> None:
    names = [name for row in "abc" for name in (row, *(f"  {row}{part}" for part in range(4)))]
    frame = pl.DataFrame({"count": range(15), "name": names})
    assert limit_rows(frame, TREE, limit=6)["name"].to_list() == [
        "a",
        "  a0",
        "  a1",
        "b",
        "  b0",
        "  b1",
        "c",
        "  c0",
        "  c1",
    ]
    rows = arrange_rows(frame, TREE, limit=2)
    assert rows.frame["name"].to_list() == [
        "a",
        "  a0",
        "  … 3 more parts",
        "b",
        "  b0",
        "  … 3 more parts",
        "… 1 more row",
    ]


def test_the_parts_of_a_single_row_are_shown_like_rows() -> None:
    frame = pl.DataFrame({"count": range(5), "name": ["step", *(f"  {part}" for part in "abcd")]})
    assert limit_rows(frame, TREE, limit=4).equals(frame)


def test_of_a_table_that_always_has_the_same_rows_none_is_left_out() -> None:
    frame = pl.DataFrame({"count": range(3), "name": ["step", "  forward", "  others"]})
    rows = arrange_rows(frame, table_of(is_nested=True, is_fixed=True), limit=1)
    assert rows.frame.equals(frame)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-5, 5)), min_size=1, max_size=20),
    st.integers(0, 6),
)
def test_shown_and_left_out_add_up_to_the_total_of_each_group(
    rows: list[tuple[int, int, int]], limit: int
) -> None:
    rows.sort(key=lambda row: row[0])
    frame = pl.DataFrame(rows, schema={"stage": pl.Int64, "depth": pl.Int64, "count": pl.Int64}, orient="row")
    frame = frame.with_columns(name=pl.lit("x"))
    shape = table_of(groups=("stage",), totals=("count",))
    shown = arrange_rows(frame, shape, limit=limit)
    for group in set(shown.groups):
        values = {"row": 0, "rest": 0}
        total = None
        for number, kind, value in zip(shown.groups, shown.kinds, shown.frame["count"], strict=True):
            if number == group:
                if kind == "total":
                    total = value
                else:
                    values[kind] += value
        assert total is None or total == sum(values.values())
    all_rows = shown.kinds.count("row")
    assert all_rows == len(limit_rows(frame, shape, limit=limit))
    assert all_rows == len(frame) or limit > 0


def test_a_table_may_have_a_column_of_any_name() -> None:
    frame = pl.DataFrame(
        {"kind": ["a", "a", "b"], "group": [1, 2, 3], "block": [4, 5, 6], "name": ["x", "y", "z"]}
    )
    shown = arrange_rows(frame, table_of(groups=("kind",), totals=("block",)), limit=1)
    assert shown.frame.columns == frame.columns
    assert shown.frame.rows()[0] == ("a", 1, 4, "x")
    assert shown.kinds == ["row", "rest", "total", "row"]
