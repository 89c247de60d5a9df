"""Summaries of reports and of their parts are one; windows, groups and devices add up to the whole."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsys_pp
from nsys_pp.commands.sql import SQL_COLUMNS, list_sql_columns
from nsys_pp.errors import OptionError, ReportError
from nsys_pp.options import SUMMARY_GROUPS as GROUPS
from tests.cli.calls import PIPELINE, assert_refused, call, succeed
from tests.read.tables import kernel, strings, write_export

REPORTS = sorted(PIPELINE.rglob("*.sqlite"))
ADDED = {  # columns that add up over whatever a table is split by
    "kernels": ("count", "total_ns"),
    "base_kernels": ("count", "total_ns"),
    "copies": ("count", "total_ns", "total_bytes"),
    "cuda": ("count", "total_ns"),
    "communication": ("count", "total_ns"),
    "distribution": ("time_ns",),
    "ranges": ("count", "total_ns", "gpu_total_ns"),
}


def tables_of(inputs: list[Path], **asked: Any) -> dict[str, pl.DataFrame]:
    return nsys_pp.summary(inputs, **asked).tables


def extract_into(folder: Path, reports: list[Path]) -> list[Path]:
    folder.mkdir()
    return [part.output for part in nsys_pp.extract(reports, folder).parts]


@cache
def added_tables(parts: tuple[Path, ...], by: str) -> dict[str, pl.DataFrame]:
    """Build the tables of `ADDED` once for all tests of this module."""
    return tables_of([*parts], tables=[*ADDED], by=by)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return extract_into(tmp_path_factory.mktemp("summary") / "parts", REPORTS)


@pytest.mark.few(1)
@pytest.mark.parametrize("by", GROUPS)
def test_parts_tell_what_their_reports_tell(parts: list[Path], by: str) -> None:
    expected = tables_of(REPORTS, by=by)
    assert expected.keys() >= {"overview", "model", "kernels", "idle"}
    found = tables_of([*parts[:3], REPORTS[3]], by=by)
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert_frame_equal(found[name], table)


@pytest.mark.parametrize("by", ["rank", "device", "run"])
def test_a_row_with_the_cpu_of_several_gpus_is_told(tmp_path: Path, by: str) -> None:
    report = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(gpu, gpu + 1, gpu, deviceId=gpu) for gpu in (1, 2)],
        "StringIds": strings("name"),
    }
    found = nsys_pp.summary(write_export(tmp_path / "a.sqlite", report), by=by, tables=["device"])
    assert any("in the rows of its first one" in note for note in found.notes) == (by != "run")


@pytest.mark.parametrize("by", [by for by in GROUPS if by != "run"])
@pytest.mark.parametrize("name", ADDED)
def test_groups_add_up_to_the_run(parts: list[Path], by: str, name: str) -> None:
    whole, split = (added_tables(tuple(parts), one)[name] for one in ("run", by))
    keys = [column for column in whole.columns if whole[column].dtype == pl.String and "rank" not in column]
    keys += [column for column in ("size_bytes", "rank_count") if column in whole.columns]
    if name == "distribution" and by == "step":
        pytest.skip("what lies between steps has no row of its own kind")
    sums = split.group_by(keys).agg(pl.col(ADDED[name]).sum())
    expected = whole.select(*keys, pl.col(ADDED[name]).fill_null(0))
    assert_frame_equal(sums, expected, check_row_order=False)


def test_damage_in_a_part_is_noticed(parts: list[Path], tmp_path: Path) -> None:
    """A byte is changed at many places: nothing but an error, or the very tables, may come of it."""
    whole, broken = parts[0].read_bytes(), tmp_path / "x.nspart"
    expected = tables_of([parts[0]], tables=["kernels", "ranges"])
    errors = []
    for at in range(0, len(whole), len(whole) // 15):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = tables_of([broken], tables=["kernels", "ranges"])
        except ReportError as error:
            errors.append(error.message)
        else:
            for name, table in expected.items():
                assert_frame_equal(found[name], table)
    assert len(errors) > 5
    assert set(errors) == {f"`{broken}` is damaged, or not a part of nsys-pp"}


@pytest.mark.filterwarnings("ignore:of 4 ranks")
def test_frames_are_those_of_the_library() -> None:
    result = nsys_pp.pipeline(REPORTS[:2])
    for name, frame in (
        ("jobs", result.training.jobs),
        ("messages", result.training.transfers),
        ("stages", result.tables(["stages"])["stages"]),
        ("clocks", result.run.clocks.table),
    ):
        assert nsys_pp.sql(f"SELECT * FROM {name}", REPORTS[:2]).table.equals(frame), name


@pytest.mark.slow
def test_tables_of_several_analyses_meet_in_one_query() -> None:
    query = """
      SELECT (SELECT count(*) FROM projections) AS ranges, (SELECT sum(count) FROM summary_copies) AS copies,
        (SELECT count(*) FROM jobs) AS jobs
    """
    answer = nsys_pp.sql(query, PIPELINE).table.row(0, named=True)
    assert answer["ranges"] == len(nsys_pp.project(PIPELINE).ranges)
    assert answer["jobs"] == len(nsys_pp.pipeline(PIPELINE).training.jobs)
    copies = nsys_pp.summary(PIPELINE, tables=["copies"]).tables["copies"]
    assert answer["copies"] == copies["count"].sum()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1", "names none of the tables"),
        ("SELECT x FROM jobs", "unable to find column"),
        ("SELEC x FROM jobs", "Expected: an SQL statement"),
        ("SELECT * FROM jobs, no_such_table", "invalid"),
        ("", "names none of the tables"),
        ("DROP TABLE jobs", "changes tables"),
        (" create\ntable x as select * from jobs", "changes tables"),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT 1 FROM a) SELECT * FROM a, jobs", "recursive"),
        ("SELECT * FROM jobs, read_csv('/etc/hosts')", "reads a file"),
        ("SELECT * FROM jobs, \"read_csv\"/**/('/etc/hosts')", "reads a file"),
        ("SELECT * FROM jobs WHERE name = '\udc80'", "can't encode"),
        (f"SELECT {'1 + ' * 5_000} 1 FROM jobs", "more than 5,000 letters"),
    ],
)
def test_what_is_no_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        nsys_pp.sql(query, REPORTS[0])
    assert "--explain" in (raised.value.hint or "")


@pytest.mark.parametrize("table", ["summary_os", "summary_memory"])
def test_a_table_that_was_not_recorded_is_named(table: str) -> None:
    with pytest.raises(OptionError, match=f"{table}` has no rows: its data was not recorded"):
        nsys_pp.sql(f"SELECT * FROM {table}", REPORTS[0])


@pytest.mark.slow
def test_every_listed_column_can_be_selected() -> None:
    columns = list_sql_columns()
    assert columns.schema == SQL_COLUMNS
    assert columns.filter(pl.col("table").str.starts_with("summary_"))["meaning"].str.len_chars().min() > 0  # type: ignore[operator]
    present = columns.filter(~pl.col("table").is_in(["summary_memory", "summary_os"]))
    counts = [
        "SELECT count(*) AS n FROM (SELECT {} FROM {})".format(
            ", ".join(map('"{}"'.format, rows["column"])), table
        )
        for (table,), rows in present.group_by("table", maintain_order=True)
    ]
    for at in range(0, len(counts), 8):  # a query has few letters; an unknown column is an error
        assert len(nsys_pp.sql(" UNION ALL ".join(counts[at : at + 8]), PIPELINE).table) > 0


def test_the_command_prints_and_writes_the_answer(tmp_path: Path) -> None:
    query = "SELECT kind, count(*) AS n FROM jobs GROUP BY kind ORDER BY kind"
    assert "forward    24" in succeed("sql", query, REPORTS[0]).stdout.split("\n")
    answer = json.loads(call("sql", query, REPORTS[0], "--json").stdout)["tables"]["answer"]
    assert {"kind": "forward", "n": 24} in answer
    target = tmp_path / "x.parquet"
    assert call("sql", query, REPORTS[0], "-o", target).code == 0
    assert pl.read_parquet(target)["n"].sum() == sum(row["n"] for row in answer)
    assert_refused(call("sql", query, REPORTS[0], "-o", target), f"`{target}` exists")


def test_lists_become_text() -> None:
    rows = json.loads(call("sql", "SELECT reports FROM clocks", PIPELINE, "--json").stdout)["tables"][
        "answer"
    ]
    assert [row["reports"] for row in rows] == ["[0]", "[1]", "[2]", "[3]"]


def test_the_list_of_columns_is_printed_without_reports() -> None:
    done = succeed("sql", "--explain", "clocks")
    assert "bound_ns" in done.stdout
    assert "micro_batch" not in done.stdout
    everything = call("sql", "--explain").stdout
    assert "micro_batch" in everything
    assert "summary_kernels" in everything
    assert call("sql", "--explain", PIPELINE).stdout == everything
    assert call("sql", "--explain", "clocks", PIPELINE).stdout == done.stdout
    assert "no table 'x'" in call("sql", "--explain", "x").stderr


def test_instants_keep_their_digits_and_computed_numbers_enough() -> None:
    query = (
        "SELECT start_ns, compute_ns / 3e9 AS share FROM jobs WHERE compute_ns > 0 ORDER BY start_ns LIMIT 3"
    )
    rows = nsys_pp.sql(query, REPORTS[0]).table
    lines = call("sql", query, REPORTS[0]).stdout.split("\n")
    for start_ns, share in rows.rows():
        assert f"{start_ns}" in "\n".join(lines)
        (shown,) = (line.split()[1] for line in lines if f"{start_ns}" in line)
        assert float(shown) == pytest.approx(share, rel=1e-3)
    _, heading, first, *_ = succeed(
        "sql", "SELECT span_ns / 1000, span_ns > 5 FROM steps", PIPELINE
    ).stdout.split("\n")
    assert (heading.split(), first.split()) == (["span_ns", "span_ns:1"], ["151,425.8", "yes"])
    mean = call("sql", "SELECT avg(start_ns) AS mean_ns FROM jobs", REPORTS[0]).stdout
    assert f"{int(rows['start_ns'][0]) // 10**9:,}" in mean
