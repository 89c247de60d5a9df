"""Tables split by rank, machine, stage, device and step."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nsys_pp.frames.table import describe_columns
from nsys_pp.tables.registry import SUMMARY_TABLES as TABLES
from nsys_pp.tables.summary import COLUMNS_OF_GROUP as GROUPS
from nsys_pp.tables.summary import GROUP_COLUMNS, RANK_COLUMNS, TableOptions
from tests.tables.summary.made import build, make_frame, make_processes, make_summary, rows_of

NAMES = (
    "overview",
    "device",
    "model",
    "distribution",
    "operators",
    "ranges",
    "families",
    "kernels",
    "base_kernels",
    "copies",
)
MORE_NAMES = ("memory", "communication", "idle", "launches", "cuda", "os", "sync")
OF_GROUP = {
    "rank": ["rank"],
    "machine": ["machine"],
    "stage": ["stage"],
    "device": ["machine", "gpu"],
    "step": ["step"],
}

Row = tuple[int, int | None, str, list[int]]
kernel_rows = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([None, 0, 1, 10]),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(0, 50), min_size=1, max_size=3),
    ),
    max_size=12,
)


def _kernels(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "process": process,
            "step": step,
            "kind": "kernel",
            "name": name,
            "base_name": name,
            "values": values,
        }
        for process, step, name, values in rows
    ]


def test_tables_are_in_the_order_in_which_they_are_shown() -> None:
    assert tuple(TABLES) == NAMES + MORE_NAMES


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("by", GROUPS)
def test_without_sums_a_table_is_empty_and_has_its_columns(name: str, by: str) -> None:
    for processes in (make_processes(0), make_processes(4)):
        table = build(name, make_summary(processes), by=by)
        groups = [] if by == "rank" and name in ("device", "launches") else OF_GROUP.get(by, [])
        assert table.is_empty()
        own = {column.name: column.dtype for column in TABLES[name].columns}
        of_groups = {column.name: column.dtype for column in GROUP_COLUMNS if column.name in groups}
        assert table.columns == [*groups, *own]
        assert dict(table.schema) == {**of_groups, **own}


@pytest.mark.parametrize("name", TABLES)
def test_what_a_table_says_of_itself_is_true_of_its_columns(name: str) -> None:
    table = TABLES[name]
    columns = {column.name for column in table.columns}
    assert table.name == name
    assert set(table.totals) <= columns
    assert not table.sort or table.sort in columns
    shared = {column.name for column in (*RANK_COLUMNS, *GROUP_COLUMNS)}
    assert describe_columns(table).keys() == columns | shared


def test_an_unknown_way_to_split_is_refused() -> None:
    with pytest.raises(ValueError, match="'node'"):
        TableOptions(by="node")


@settings(deadline=None, max_examples=60)
@given(rows=kernel_rows, by=st.sampled_from([by for by in GROUPS if by != "run"]))
def test_groups_add_up_to_the_run(rows: list[Row], by: str) -> None:
    summary = make_summary(make_processes(6, stages=3), op_aggregates=_kernels(rows))
    whole = build("kernels", summary)
    parts = build("kernels", summary, by=by)
    sums = parts.group_by("name").agg(
        pl.col("count", "total_ns").sum(), pl.col("min_ns").min(), pl.col("max_ns").max()
    )
    columns = ["name", "count", "total_ns", "min_ns", "max_ns"]
    assert sorted(sums.select(columns).rows()) == sorted(whole.select(columns).rows())
    shares = parts.group_by(OF_GROUP[by]).agg(pl.col("fraction").sum(), pl.col("total_ns").sum())
    assert all(
        share == pytest.approx(1) for share, total in shares.select("fraction", "total_ns").rows() if total
    )


@settings(deadline=None, max_examples=60)
@given(rows=kernel_rows)
def test_rows_are_those_of_plain_loops(rows: list[Row]) -> None:
    values: dict[str, list[int]] = defaultdict(list)
    of_rank: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for process, _, name, own in rows:
        values[name] += own
        of_rank[name][process] += sum(own)
    ranks = {process for process, *_ in rows}
    table = build("kernels", make_summary(make_processes(6), op_aggregates=_kernels(rows)))
    assert ("rank_min_ns" in table.columns) == (len(ranks) > 1)
    assert table["total_ns"].to_list() == sorted((sum(own) for own in values.values()), reverse=True)
    for row in table.iter_rows(named=True):
        own = values[row["name"]]
        assert (row["count"], row["median_ns"], row["max_ns"]) == (len(own), median(own), max(own))
        if len(ranks) > 1:
            totals = [of_rank[row["name"]].get(rank, 0) for rank in sorted(ranks)]
            spread = row["rank_min_ns"], row["rank_median_ns"], row["rank_max_ns"]
            assert spread == (min(totals), median(totals), max(totals))
            slowest = row["slowest_rank"]
            assert (slowest is None) == (max(totals) == 0)
            if slowest is not None:
                assert of_rank[row["name"]][int(slowest.removeprefix("rank "))] == max(totals)


def test_a_rank_without_the_kernel_counts_as_zero_if_it_has_others() -> None:
    rows: list[Row] = [(0, None, "a", [4]), (1, None, "a", [10]), (2, None, "b", [1])]
    table = build("kernels", make_summary(make_processes(5), op_aggregates=_kernels(rows)))
    columns = ["name", "rank_min_ns", "rank_median_ns", "rank_max_ns", "slowest_rank"]
    assert rows_of(table, *columns) == [("a", 0, 4, 10, "rank 1"), ("b", 0, 0, 1, "rank 2")]


def test_one_rank_per_group_has_no_spread_over_ranks() -> None:
    summary = make_summary(make_processes(3), op_aggregates=_kernels([(0, 1, "a", [4]), (1, 1, "a", [10])]))
    assert "slowest_rank" in build("kernels", summary).columns
    assert "slowest_rank" in build("kernels", summary, by="step").columns
    assert "slowest_rank" in build("kernels", summary, by="machine").columns
    assert "slowest_rank" not in build("kernels", summary, by="rank").columns
    assert "slowest_rank" not in build("kernels", summary, by="device").columns


def test_groups_stand_in_natural_order_and_the_unknown_last() -> None:
    rows: list[Row] = [(process, step, "a", [1]) for process, step in [(10, 10), (2, None), (0, -1), (1, 2)]]
    summary = make_summary(make_processes(12, stages=12), op_aggregates=_kernels(rows))
    assert build("kernels", summary, by="rank")["rank"].to_list() == ["rank 0", "rank 1", "rank 2", "rank 10"]
    assert build("kernels", summary, by="step")["step"].to_list() == [-1, 2, 10, None]
    assert build("kernels", summary, by="stage")["stage"].to_list() == [0, 1, 2, 10]
    assert rows_of(build("kernels", summary, by="device"), "machine", "gpu") == [
        ("node1", "GPU 0"),
        ("node1", "GPU 1"),
        ("node2", "GPU 0"),
        ("node6", "GPU 0"),
    ]
    unknown = make_summary(
        make_processes(2).with_columns(stage=pl.when(pl.col("process") > 0).then("stage")),
        op_aggregates=_kernels(rows[2:]),
    )
    assert build("kernels", unknown, by="stage")["stage"].to_list() == [0, None]


def test_64_ranks_add_up() -> None:
    rows: list[Row] = [(0, step, f"k{name}", [name, step, 7]) for step in range(4) for name in range(100)]
    one = make_frame("op_aggregates", _kernels(rows))
    ranks = [one.with_columns(process=pl.lit(rank, pl.UInt32)) for rank in range(64)]
    summary = make_summary(make_processes(64))
    summary = replace(summary, frames={**summary.frames, "op_aggregates": pl.concat(ranks)})
    tables = [build("kernels", summary, by=by) for by in GROUPS]
    assert [table["count"].sum() for table in tables] == [64 * 4 * 100 * 3] * len(tables)
