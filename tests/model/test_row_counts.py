"""Rows of all tables: those that were read are used or left out for a reason, in whole and in damaged reports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.read.arrow import read_table_directory
from tests.conftest import find_shared_reports
from tests.read.tables import Row, call, kernel, memory, op, os_call, push_pop, strings, switch, write_export
from tests.row_sums import FRAMES, WITHOUT_FRAMES, check_row_sums, check_shown_sums

_FIXTURES = Path(__file__).parents[2] / "fixtures" / "pipeline"
pytestmark = pytest.mark.filterwarnings("ignore:.*left out", "ignore:.*damaged", "ignore:.*no table of names")
_INTEGERS = st.sampled_from([None, 0, 1, -1, 5, 99, 2**31, 2**62 + 1, 2**63 - 1, -(2**63)])
_TABLES: dict[str, list[Row]] = {
    "StringIds": strings("a", "b"),
    "NVTX_EVENTS": [
        *(push_pop(i, i + 5, text="x") for i in range(4)),
        push_pop(0, None, eventType=75, domainId=1, text="domain"),
        push_pop(3, None, eventType=34, text="mark"),
        push_pop(3, None, eventType=39, text="thread"),
    ],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [call(i, i + 1, i) for i in range(4)],
    "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(4)],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [op(i + 2, i + 4, i, copyKind=1, bytes=8) for i in range(2)],
    "CUPTI_ACTIVITY_KIND_MEMSET": [op(i + 2, i + 4, i, bytes=8) for i in range(2)],
    "OSRT_API": [os_call(1, 2), os_call(3, 4, eventClass=28)],
    "SCHED_EVENTS": [switch(1, 1), switch(2, 0)],
    "CUDA_GPU_MEMORY_USAGE_EVENTS": [memory(1, 0, 16, 8), memory(2, 1, 16, 8)],
    "DIAGNOSTIC_EVENT": [
        {"severity": kind, "text": "t", "timestamp": kind, "timestampType": kind} for kind in (1, 2, 3, 9)
    ],
}


@pytest.mark.parametrize("path", find_shared_reports(), ids=lambda path: path.stem)
def test_sums_of_real_reports(path: Path) -> None:
    check_row_sums(path)
    check_shown_sums(path)


def test_sums_of_a_simulated_report() -> None:
    report = check_row_sums(_FIXTURES / "node2" / "rank0.sqlite")
    left_out = report.row_counts.drop_nulls("reason")
    assert left_out.select("table", "reason", "row_count").rows() == [
        ("nvtx", "notes: names of threads and devices, ends of domains", 1)
    ]


_EDITS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 6), _INTEGERS), max_size=8)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_EDITS)
def test_sums_of_damaged_rows(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, ...]]) -> None:
    path = write_export(tmp_path_factory.mktemp("rows") / "a.sqlite", _TABLES)
    names = sorted({*_TABLES} - {"StringIds"})
    with closing(sqlite3.connect(path)) as connection, connection:
        for table_number, column_number, row, value in edits:
            table = names[table_number % len(names)]
            columns = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
            column = columns[column_number % len(columns)]
            connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, row))
    check_row_sums(path)
    check_shown_sums(path)


def test_each_reason_is_counted(tmp_path: Path) -> None:
    kernels = [kernel(0, 0, 1), kernel(5, 6, 2), kernel(9, 7, 3), {**kernel(1, 2, 4), "end": None}]
    events = [
        push_pop(0, 9),
        {**push_pop(0, 9), "start": None},
        {**push_pop(0, 9), "globalTid": None},
        push_pop(0, 9, eventType=200),
        push_pop(0, None, eventType=39),
        push_pop(2**62 + 1, 2**62 + 5),
    ]
    path = write_export(
        tmp_path / "a.sqlite",
        {"StringIds": strings("a", "b"), "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "NVTX_EVENTS": events},
    )
    counts = check_row_sums(path).row_counts.filter(pl.col("table").is_in(["kernels", "nvtx"]))
    assert {(table, reason): count for _, table, _, reason, count in counts.rows()} == {
        ("nvtx", None): 1,
        ("nvtx", "of an unknown type"): 1,
        ("nvtx", "without a thread"): 1,
        ("nvtx", "notes: names of threads and devices, ends of domains"): 1,
        ("nvtx", "without a start"): 1,
        ("nvtx", "at impossible times"): 1,
        ("kernels", None): 1,
        ("kernels", "without times: CUPTI did not measure them"): 2,
        ("kernels", "end before they start"): 1,
    }


def test_what_matters_is_a_note(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 0, 1), kernel(5, 6, 2)],
            "NVTX_EVENTS": [push_pop(0, 9), {**push_pop(0, 9), "start": None}],
            "OSRT_API": [os_call(3, 4, eventClass=28)],
        },
    )
    with pytest.warns(UserWarning, match="1 of 2 kernels") as noted:
        build_report(read_report(path))
    assert [str(note.message).removeprefix(f"`{path}`") for note in noted] == [
        ": left out 1 of 2 NVTX events without a start",
        ": left out 1 of 2 kernels without times: CUPTI did not measure them",
        " has no table of names: kernels have none",
    ]


def test_missing_rows_are_counted_by_their_numbers(tmp_path: Path) -> None:
    tables = {**_TABLES, "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(90)]}
    path = write_export(tmp_path / "a.sqlite", tables)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid IN (3, 4, 5)")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET rowid = 1 << 40 WHERE rowid = 4")
    counts = check_row_sums(path).row_counts.filter(stage="file")
    assert counts.select("table", "reason", "row_count").rows() == [
        ("kernels", None, 87),
        ("kernels", "missing: their numbers have gaps", 3),
    ]


def test_a_folder_of_tables_is_counted_alike(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite", _TABLES)
    folder = tmp_path / "tables"
    folder.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        for name in _TABLES:
            rows = pl.read_database(f'SELECT * FROM "{name}"', connection, infer_schema_length=None)
            rows.write_parquet(folder / f"{name}.parquet")
    one = build_report(read_report(path)).row_counts
    other = build_report(read_table_directory(folder, need=read_report(path).groups)).row_counts
    assert one.equals(other)


def test_every_table_has_a_frame_or_needs_none() -> None:
    from nsys_pp.read.names import TABLES

    counted = {table.frame for table in TABLES if not table.any_of and not table.rows_named}
    assert counted == {table for tables in FRAMES for table in tables} | WITHOUT_FRAMES
