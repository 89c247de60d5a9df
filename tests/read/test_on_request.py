"""Tables that are read on request, and the list of all tables of an export."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from nsys_pp.frames.raw import ALL_GROUPS, SHOW_GROUPS, SURVEY_GROUPS, RawReport, find_show_groups
from nsys_pp.model import build_report
from nsys_pp.options import SHOW_KINDS
from nsys_pp.read import read_report
from nsys_pp.read.names import TABLES, TABLES_ON_REQUEST
from nsys_pp.read.plan import plan_sources
from tests.read.on_request import write_everything
from tests.read.tables import THREAD, strings, write_export

ALWAYS = {name for table in TABLES for name in table.names}
ON_REQUEST = {name for table in TABLES_ON_REQUEST for name in table.names} - ALWAYS


def read_shown(path: Path) -> RawReport:
    return read_report(path, need=frozenset(SHOW_GROUPS))


def test_every_kind_has_a_group() -> None:
    assert {f"show_{kind}" for kind in SHOW_KINDS} == SHOW_GROUPS
    assert find_show_groups(SHOW_KINDS) == SHOW_GROUPS
    assert find_show_groups(["os"]) == {"show_os"}
    groups = {group for table in TABLES_ON_REQUEST for group in table.groups}
    assert groups <= SHOW_GROUPS | {"copy_kinds", "overview", "metric_sums", "network_sums"}


def test_a_trace_without_them_reads_none(tmp_path: Path) -> None:
    path = write_everything(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
        catalog = {
            name: [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')] for name in names
        }
    read = {source.name for source in plan_sources(catalog, SURVEY_GROUPS | {"details"}, has_row_id=True)}
    assert not read & (ON_REQUEST | {"SOMETHING_NEW", "CUDA_UM_CPU_PAGE_FAULT_EVENTS"})
    raw = read_report(path, need=ALL_GROUPS)
    shown = ("activities", "switches", "samples", "stacks", "gpu_metrics", "network_metrics")
    assert all(raw[frame].is_empty() for frame in shown)


def test_each_group_reads_its_own_tables(tmp_path: Path) -> None:
    path = write_everything(tmp_path / "report.sqlite")
    rows = {
        group: set(read_report(path, need=frozenset([group]))["activities"]["source"])
        for group in SHOW_GROUPS
    }
    assert rows["show_os"] == {"OS calls"}
    assert rows["show_mpi"] == {"MPI"}
    assert rows["show_libraries"] == {"cuBLAS", "cuDNN", "OpenACC", "OpenMP"}
    assert rows["show_profiler"] == {"profiler overhead", "CUDA overhead", "messages of nsys"}
    assert rows["show_other"] == {"SOMETHING_NEW", "SYSTEM_THING"}
    assert rows["show_memory"] == {
        *("memory operations", "memory pools", "page faults on CPUs", "page faults on GPUs")
    }
    assert rows["show_states"] == rows["show_metrics"] == rows["show_counters"] == set()


def test_folders_of_tables_are_read_alike(tmp_path: Path) -> None:
    path = write_everything(tmp_path / "report.sqlite")
    folder = tmp_path / "report_pqtdir"
    folder.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall():
            cursor = connection.execute(f'SELECT * FROM "{name}"')
            columns = [column for column, *_ in cursor.description]
            frame = pl.DataFrame(cursor.fetchall(), schema=columns, orient="row", infer_schema_length=None)
            frame.write_parquet(folder / f"{name}.parquet")
    of_file, of_folder = (
        build_report(read_report(source, need=SHOW_GROUPS | {"ops", "tables"})) for source in (path, folder)
    )
    assert of_file.activities.equals(of_folder.activities)
    metrics = zip(of_file.sampled_metrics, of_folder.sampled_metrics, strict=True)
    for one, other in metrics:
        assert (one.name, one.unit) == (other.name, other.unit)
        assert one.samples.equals(other.samples)
    assert of_file.exported_tables.equals(of_folder.exported_tables)
    assert len(of_file.activities) > 20


def test_an_unknown_table_is_read_by_its_columns(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "report.sqlite",
        {
            "StringIds": strings("named"),
            "PROCESSES": [{"globalPid": 0, "pid": 0}],
            "ROW_BY_ID": [{"start": 1, "end": 4, "globalTid": THREAD, "nameId": 0, "bytes": 8}],
            "ROW_BY_TEXT": [{"startedAt": 2, "endedAt": 3, "text": "texted"}],
            "NUMBERS_AS_TEXT": [{"start": "soon", "end": 9}, {"start": 5, "end": "late"}],
            "NO_TIMES": [{"value": 7}],
        },
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE "WITHOUT" (start, name TEXT, PRIMARY KEY (start)) WITHOUT ROWID')
        connection.execute("INSERT INTO \"WITHOUT\" VALUES (7, 'keyed')")
        connection.execute('CREATE VIEW "A_VIEW" AS SELECT 1 AS start')
    report = build_report(read_shown(path))
    rows = report.activities.select("row", "thread_key", "start_ns", "end_ns", "name", "size_bytes")
    assert sorted(rows.rows()) == [
        ("NUMBERS_AS_TEXT", None, 5, None, "(no name)", None),
        ("ROW_BY_ID", THREAD, 1, 4, "named", 8),
        ("ROW_BY_TEXT", None, 2, 3, "texted", None),
        ("WITHOUT", None, 7, None, "keyed", None),
    ]


def test_rows_of_tables_without_an_entry_have_their_arguments(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "report.sqlite", {"StringIds": strings("x"), "PROCESSES": [{"globalPid": 0, "pid": 0}]}
    )
    # as the DDL of nsys 2023.4 has them
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """
            CREATE TABLE ETW_EVENTS (timestamp INTEGER NOT NULL, processId INTEGER, threadId INTEGER,
              providerId INTEGER NOT NULL, taskId INTEGER NOT NULL, eventId INTEGER NOT NULL, version INTEGER NOT NULL,
              opcode INTEGER, data TEXT NOT NULL);
            INSERT INTO ETW_EVENTS VALUES (5, 1, 2, 3, 4, 5, 6, 7, '{"irq": 4}');
            CREATE TABLE GPU_MEMORY_BUDGET_EVENTS (timestamp INTEGER, globalPid INTEGER, value INTEGER);
            INSERT INTO GPU_MEMORY_BUDGET_EVENTS VALUES (9, 16777216, 77);
            """
        )
    rows = build_report(read_shown(path)).activities
    assert sorted(
        rows.select("row", "process_key", "start_ns", "end_ns", "cpu", "count", "detail").rows()
    ) == [
        ("ETW_EVENTS", None, 5, None, None, None, '{"irq": 4}'),
        ("GPU_MEMORY_BUDGET_EVENTS", 16777216, 9, None, None, 77, None),
    ]


def test_all_tables_are_listed_with_their_rows_and_uses(tmp_path: Path) -> None:
    path = write_everything(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE CUDA_CALLCHAINS (id INTEGER PRIMARY KEY, symbol INTEGER)")
        connection.executemany("INSERT INTO CUDA_CALLCHAINS VALUES (?, 1)", [(0,), (7,)])
        connection.execute("CREATE TABLE ENUM_THINGS (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE KEYED (id TEXT PRIMARY KEY) WITHOUT ROWID")
        expected = {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            if not name.startswith("ENUM_")
        }
    tables = build_report(read_report(path, need=frozenset({"tables"}))).exported_tables
    assert dict(tables.select("table", "row_count").rows()) == expected
    uses = {table: (use, show) for table, use, show in tables.select("table", "use", "show").iter_rows()}
    assert uses["CUPTI_ACTIVITY_KIND_KERNEL"] == ("drawn", None)
    assert uses["OSRT_API"] == ("on request", "os")
    assert uses["GPU_METRICS"] == ("on request", "metrics")
    assert uses["SOMETHING_NEW"] == ("on request", "other")
    assert uses["PROCESSES"] == ("facts", None)
    assert uses["CUDA_CALLCHAINS"] == ("on request", "samples")
    assert uses["NOT_TIMED"] == uses["KEYED"] == ("unknown", None)
    assert tables["use"].is_sorted()


@pytest.mark.parametrize("need", [frozenset(), ALL_GROUPS])
def test_tables_are_listed_only_if_asked_for(need: frozenset, tmp_path: Path) -> None:  # type: ignore[type-arg]
    path = write_everything(tmp_path / "report.sqlite")
    assert build_report(read_report(path, need=need)).exported_tables.is_empty()
