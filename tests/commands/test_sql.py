"""Queries over the frames and tables of a run."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import nsys_pp
from nsys_pp.commands.sql import SQL_COLUMNS, list_sql_columns
from nsys_pp.errors import OptionError
from tests.cli.calls import assert_refused, call

PIPELINE = Path(__file__).parents[2] / "fixtures" / "pipeline"

pytestmark = pytest.mark.usefixtures("reports_read_once")


def test_frames_are_those_of_the_library() -> None:
    result = nsys_pp.pipeline(PIPELINE)
    for name, frame in (
        ("jobs", result.training.jobs),
        ("messages", result.training.transfers),
        ("stages", result.tables(["stages"])["stages"]),
        ("clocks", result.run.clocks.table),
    ):
        assert nsys_pp.sql(f"SELECT * FROM {name}", PIPELINE).table.equals(frame), name


def test_tables_of_several_analyses_meet_in_one_query() -> None:
    query = """
      SELECT (SELECT count(*) FROM projections) AS ranges, (SELECT sum(count) FROM summary_copies) AS copies,
        (SELECT count(*) FROM jobs) AS jobs
    """
    answer = nsys_pp.sql(query, PIPELINE).table.row(0, named=True)
    assert answer["ranges"] == len(nsys_pp.project(PIPELINE).ranges)
    assert answer["jobs"] == len(nsys_pp.pipeline(PIPELINE).training.jobs)
    copies = nsys_pp.summarise(PIPELINE, tables=["copies"]).tables["copies"]
    assert answer["copies"] == copies["count"].sum()


def test_only_the_named_tables_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    from nsys_pp.commands import sql

    monkeypatch.setattr(sql, "pipeline", None)
    monkeypatch.setattr(sql, "summarise", None)
    assert len(nsys_pp.sql("SELECT name FROM Projections LIMIT 3", PIPELINE).table) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1", "names none of the tables"),
        ("SELECT x FROM jobs", "unable to find column"),
        ("SELEC x FROM jobs", "Expected: an SQL statement"),
        ("SELECT * FROM jobs, no_such_table", "invalid"),
        ("", "names none of the tables"),
    ],
)
def test_what_is_no_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        nsys_pp.sql(query, PIPELINE)
    assert raised.value.hint is not None
    assert "--explain" in raised.value.hint


def test_a_table_that_was_not_recorded_is_named() -> None:
    with pytest.raises(OptionError, match="summary_os` has no rows: its data was not recorded"):
        nsys_pp.sql("SELECT * FROM summary_os", PIPELINE)


def test_every_listed_column_can_be_selected() -> None:
    columns = list_sql_columns()
    assert columns.schema == SQL_COLUMNS
    assert columns.filter(pl.col("table").str.starts_with("summary_"))["meaning"].str.len_chars().min() > 0  # type: ignore[operator]
    absent = []
    for (table,), rows in columns.group_by("table", maintain_order=True):
        quoted = ", ".join(f'"{column}"' for column in rows["column"])
        try:
            answer = nsys_pp.sql(f"SELECT {quoted} FROM {table}", PIPELINE).table
        except OptionError as error:
            absent.append((table, "was not recorded" in error.message))
            continue
        assert answer.columns == rows["column"].to_list()
    assert absent == [("summary_memory", True), ("summary_os", True)]


def test_the_command_prints_and_writes_the_answer(tmp_path: Path) -> None:
    query = "SELECT kind, count(*) AS n FROM jobs GROUP BY kind ORDER BY kind"
    done = call("sql", query, PIPELINE)
    assert done.code == 0
    assert "forward     96" in done.stdout.split("\n")
    answer = json.loads(call("sql", query, PIPELINE, "--json").stdout)["answer"]
    assert {"kind": "forward", "n": 96} in answer
    target = tmp_path / "x.parquet"
    assert call("sql", query, PIPELINE, "-o", target).code == 0
    assert pl.read_parquet(target)["n"].sum() == sum(row["n"] for row in answer)
    assert_refused(call("sql", query, PIPELINE, "-o", target), f"`{target}` exists")


def test_lists_become_text() -> None:
    rows = json.loads(call("sql", "SELECT reports FROM clocks", PIPELINE, "--json").stdout)["answer"]
    assert [row["reports"] for row in rows] == ["[0]", "[1]", "[2]", "[3]"]


def test_the_list_of_columns_is_printed_without_reports() -> None:
    done = call("sql", "--explain", "clocks")
    assert done.code == 0
    assert "bound_ns" in done.stdout
    assert "micro_batch" not in done.stdout
    everything = call("sql", "--explain").stdout
    assert "micro_batch" in everything
    assert "summary_kernels" in everything
    assert "no table 'x'" in call("sql", "--explain", "x").stderr


@pytest.mark.parametrize("arguments", [[], ["SELECT 1"]])
def test_a_query_and_reports_are_needed(arguments: list[str]) -> None:
    done = call("sql", *arguments)
    assert done.code == 2
    assert "expected a query and reports, or `--explain`" in done.stderr


def test_instants_keep_their_digits_and_computed_numbers_enough() -> None:
    query = (
        "SELECT start_ns, compute_ns / 3e9 AS share FROM jobs WHERE compute_ns > 0 ORDER BY start_ns LIMIT 3"
    )
    rows = nsys_pp.sql(query, PIPELINE).table
    lines = call("sql", query, PIPELINE).stdout.split("\n")
    for start_ns, share in rows.rows():
        assert f"{start_ns:,}" in "\n".join(lines)
        (shown,) = (line.split()[1] for line in lines if f"{start_ns:,}" in line)
        assert float(shown) == pytest.approx(share, rel=1e-3)
    mean = call("sql", "SELECT avg(start_ns) AS mean_ns FROM jobs", PIPELINE).stdout
    assert f"{int(rows['start_ns'][0]) // 10**9:,}" in mean


def test_columns_are_listed_beside_reports() -> None:
    everything = call("sql", "--explain").stdout
    assert call("sql", "--explain", PIPELINE).stdout == everything
    of_jobs = call("sql", "--explain", "jobs", PIPELINE).stdout
    assert call("sql", "--explain", "jobs").stdout == of_jobs
    assert "outer" in of_jobs
    assert "summary_kernels" not in of_jobs
