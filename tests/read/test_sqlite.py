"""Values come back as they are, from whatever SQLite stores them as."""

from __future__ import annotations

import ctypes
import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.frames.raw import SCHEMAS, Group, RawReport
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.read.sqlite import CompiledConnection, Connection, PlainConnection, Rows, find_library
from tests.cli.calls import RANK0, run
from tests.draws import count_draws
from tests.read.tables import THREAD, call, kernel, push_pop, strings, write_export
from tests.sql import add_rows, edit

_OPS: frozenset[Group] = frozenset({"ops"})
_RANGES: frozenset[Group] = frozenset({"ranges"})


def test_a_real_report_comes_whole(shared_report: Path) -> None:
    raw = read_report(shared_report)
    connection = sqlite3.connect(f"{shared_report.as_uri()}?immutable=1", uri=True)
    connection.text_factory = bytes
    present = {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    for frame, table, where in (
        ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL", ""),
        ("calls", "CUPTI_ACTIVITY_KIND_RUNTIME", ""),
        ("copies", "CUPTI_ACTIVITY_KIND_MEMCPY", ""),
        ("sets", "CUPTI_ACTIVITY_KIND_MEMSET", ""),
        ("graphs", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ""),
        ("nvtx", "NVTX_EVENTS", ""),
        ("strings", "StringIds", ""),
        ("gpus", "TARGET_INFO_GPU", ""),
    ):
        rows = raw[frame]
        assert rows.schema == SCHEMAS[frame]
        if table not in present:
            assert rows.is_empty()
            continue
        expected = connection.execute(f"SELECT count(*) FROM {table} {where}").fetchone()[0]
        assert rows.height == expected, frame
        if "start" in rows.columns and expected:
            sums = connection.execute(f"SELECT sum(start), sum(end) FROM {table} {where}").fetchone()
            assert (rows["start"].sum(), rows["end"].sum()) == (sums[0], sums[1] or 0)
    for name, text in connection.execute("SELECT id, value FROM StringIds"):
        assert (raw["strings"].filter(pl.col("id") == name)["text"].item() or "").encode() == text
    connection.close()


@pytest.mark.parametrize("missing", [set(), {3, 4, 5, 17, 30, 31, 32, 33}, set(range(1, 39))], ids=str)
def test_chunks_keep_rows_and_their_order(tmp_path: Path, missing: set[int]) -> None:
    rows = [push_pop(i * 10, i * 10 + 5) for i in range(100)]
    path = write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": rows})
    deleted = (f"DELETE FROM NVTX_EVENTS WHERE rowid = {row}" for row in missing)
    edit(path, *deleted, "UPDATE NVTX_EVENTS SET rowid = -5 WHERE rowid = 40")
    raw = read_report(path, need=_RANGES)
    assert raw["nvtx"]["row"].to_list() == [-5, *(i for i in range(1, 101) if i != 40 and i not in missing)]
    assert raw["nvtx"]["start"].to_list()[1:] == [(i - 1) * 10 for i in raw["nvtx"]["row"].to_list()[1:]]


@pytest.mark.parametrize("first", [0, 50], ids=["at once", "late"])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("9007199254740993", 9007199254740993),
        (" 12 ", 12),
        ("-5", -5),
        (5.0, 5),
        ("", None),
        (None, None),
    ],
    ids=repr,
)
def test_integers_stored_as_something_else_are_exact(
    tmp_path: Path, first: int, stored: object, expected: int | None
) -> None:
    rows = [{"start": 9007199254740993 + i, "end": 2 + i, "globalTid": THREAD} for i in range(60)]
    path = tmp_path / "a.sqlite"
    # without declared types SQLite keeps text as text
    edit(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId)")
    values = [(*row.values(), stored if i == first else i) for i, row in enumerate(rows)]
    add_rows(path, "CUPTI_ACTIVITY_KIND_RUNTIME", values)
    calls = read_report(path, need=_OPS)["calls"]
    assert calls["correlation"].to_list() == [expected if i == first else i for i in range(60)]
    assert calls["start"].to_list() == [row["start"] for row in rows]


@pytest.mark.parametrize(
    "stored", ["abc", "0x12", "1.5", 1.5, "12 apples", b"\x01", "99999999999999999999"], ids=repr
)
def test_rows_without_a_number_that_matters_are_left_out_and_told(tmp_path: Path, stored: object) -> None:
    rows = [call(0, 1, 1), {**call(2, 3, 2), "correlationId": stored}]
    path = write_export(tmp_path / "odd.sqlite", {"CUPTI_ACTIVITY_KIND_RUNTIME": rows})
    with pytest.warns(
        UserWarning, match="1 row of `CUPTI_ACTIVITY_KIND_RUNTIME` with no whole number in `corr"
    ):
        report = build_report(read_report(path, need=_OPS))
    assert len(report.api_calls) == 1
    counts = report.row_counts.filter(stage="report", table="calls").select("reason", "row_count").rows()
    assert counts == [(None, 1), ("with no whole number in `correlationId`", 1)]


def test_text_for_a_number_that_decorates_is_null(tmp_path: Path) -> None:
    rows = [kernel(0, 1, 1, registersPerThread="many"), kernel(2, 3, 2)]
    path = write_export(tmp_path / "a.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    with pytest.warns(UserWarning, match="no whole number in `registersPerThread` kept without it"):
        assert read_report(path)["kernels"]["registers"].to_list() == [None, 16]


def test_broken_text_is_repaired_and_nothing_is_cut(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "a.sqlite", {"StringIds": strings("ok", "", "?", "?"), "NVTX_EVENTS": [push_pop(0, 1)]}
    )
    edit(
        path,
        "UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE id = 2",
        "UPDATE StringIds SET value = CAST(x'610062' AS TEXT) WHERE id = 3",
        "UPDATE NVTX_EVENTS SET text = CAST(x'c3' AS TEXT)",
    )
    raw = read_report(path)
    assert raw["strings"]["text"].to_list() == ["ok", None, "a\N{REPLACEMENT CHARACTER}b", "a\0b"]
    assert raw["nvtx"]["text"].to_list() == ["\N{REPLACEMENT CHARACTER}"]


def test_payloads_are_read_where_there_are_any(tmp_path: Path) -> None:
    rows = [push_pop(i, i + 1, doubleValue=None, uint64Value=None, binaryData=None) for i in range(40)]
    rows += [
        push_pop(50, 51, doubleValue=0.1),
        push_pop(52, 53, uint64Value=-1),
        push_pop(54, 55, binaryData=b"\x01\xff"),
        push_pop(56, 57, binaryData="01ff"),
    ]
    payloads = read_report(write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": rows}))["payloads"]
    assert payloads.with_columns(pl.col("binary").str.to_lowercase()).select(
        "row", "double", "uint64", "binary"
    ).rows() == [
        (41, 0.1, None, None),
        (42, None, -1, None),
        (43, None, None, "01ff"),
        (44, None, None, "01ff"),
    ]


def test_rows_without_ids_are_counted(tmp_path: Path) -> None:
    path = edit(
        tmp_path / "a.sqlite",
        "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER,"
        " globalTid INTEGER, uint64Value INTEGER) WITHOUT ROWID",
    )
    add_rows(path, "NVTX_EVENTS", [(i, i + 1, 59, THREAD, i or None) for i in range(5)])
    raw = read_report(path)
    assert raw["nvtx"]["row"].to_list() == [1, 2, 3, 4, 5]
    assert raw["payloads"].select("row", "uint64").rows() == [(2, 1), (3, 2), (4, 3), (5, 4)]


def test_a_column_that_hides_the_row_ids_is_none(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": [push_pop(0, 1), push_pop(1, 2)]})
    edit(path, "ALTER TABLE NVTX_EVENTS ADD COLUMN RowID INTEGER DEFAULT 900000000")
    raw = read_report(path)
    assert raw["nvtx"]["row"].to_list() == [1, 2]
    assert raw.recorded["nvtx"] == 2


@pytest.mark.parametrize(
    "name", ["a?b#c%20d.sqlite", "with space.sqlite", "größe-节点.sqlite", "'quoted\".sqlite"]
)
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    path = write_export(tmp_path / name, {"NVTX_EVENTS": [push_pop(0, 1)]})
    assert read_report(path)["nvtx"].height == 1


def test_a_file_name_need_not_be_text(tmp_path: Path) -> None:
    path = write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": [push_pop(0, 1)]})
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.sqlite"))
    try:
        path.rename(named)
    except OSError:
        pytest.skip("this file system wants UTF-8")
    assert read_report(named)["nvtx"].height == 1


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    rows = {"NVTX_EVENTS": [push_pop(0, 1, color=7)], "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 1, 1)]}
    path = write_export(tmp_path / "a.sqlite", rows)
    ranges, ops = read_report(path, need=_RANGES), read_report(path, need=_OPS)
    assert ranges["kernels"].is_empty()
    assert ranges["nvtx"]["color"].to_list() == [None]
    assert ops["nvtx"].is_empty()
    assert ops["kernels"].select("correlation", "registers").rows() == [(1, None)]
    assert read_report(path)["kernels"]["registers"].to_list() == [16]
    for raw in (ranges, ops):
        assert raw.recorded == {"nvtx": 1, "kernels": 1}
        _assert_schemas(raw)


def _assert_schemas(raw: RawReport) -> None:
    assert {name: raw[name].schema for name in SCHEMAS} == dict(SCHEMAS)


def test_exports_with_the_definitions_of_another_have_their_own_pages_and_counts(tmp_path: Path) -> None:
    few = write_export(tmp_path / "few.sqlite", {"NVTX_EVENTS": [push_pop(10, 20)]})
    rows = [push_pop(at, at + 5) for at in range(3_000)]
    many = write_export(tmp_path / "many.sqlite", {"NVTX_EVENTS": rows})
    assert [len(read_report(path)["nvtx"]) for path in (few, many, few)] == [1, 3_000, 1]
    edit(few, "ALTER TABLE NVTX_EVENTS ADD COLUMN added INTEGER")
    assert len(read_report(few)["nvtx"]) == 1


COLUMNS = {
    "start": "INTEGER",
    "end": "INTEGER",
    "eventType": "INTEGER",
    "globalTid": "INTEGER",
    "text": "TEXT",
    "textId": "INTEGER",
    "color": "INTEGER",
    "doubleValue": "REAL",
}

Value = int | float | str | None


def draw_rows(seed: int, count: int = 400) -> list[list[Value]]:
    """Draw rows of NVTX events: numbers of all widths, texts of all lengths, nulls."""
    chance = random.Random(seed)
    rows: list[list[Value]] = []
    for number in range(count):
        end = chance.choice(
            [None, 0, -(1 << 63), (1 << 63) - 1, chance.randrange(1 << chance.randrange(1, 63))]
        )
        text = chance.choice([None, "", "forward", "é" * chance.randrange(40), "x" * chance.randrange(9000)])
        real = chance.choice([None, 0.0, -1.5, 1e300, float("inf"), 7])
        rows.append([number * 1000 + chance.randrange(900), end, 59, 1 << 48, text, number % 300, None, real])
    return rows


def write(
    path: Path,
    rows: Sequence[Sequence[Value]],
    *,
    before: Sequence[str] = (),
    declared: str = "",
    suffix: str = "",
) -> Path:
    """Write NVTX events with SQLite, after some statements."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in before:
            connection.execute(statement)
        columns = declared or ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE NVTX_EVENTS ({columns}){suffix}")
        connection.execute("BEGIN")
        marks = ", ".join("?" * len(COLUMNS))
        connection.executemany(f"INSERT INTO NVTX_EVENTS ({', '.join(COLUMNS)}) VALUES ({marks})", rows)
        connection.execute("COMMIT")
    return path


_KEYED = ", ".join(f"{name} {kind}{' PRIMARY KEY' * (name == 'start')}" for name, kind in COLUMNS.items())
_COMPUTED = ", ".join(["twice INTEGER AS (2 * start) STORED", *(f"{n} {k}" for n, k in COLUMNS.items())])


@pytest.mark.parametrize(
    ("before", "declared", "suffix"),
    [
        *(([f"PRAGMA page_size = {size}"], "", "") for size in (512, 1024, 16384, 65536)),
        (["PRAGMA auto_vacuum = FULL"], "", ""),
        (["PRAGMA encoding = 'UTF-16le'"], "", ""),
        (["PRAGMA encoding = 'UTF-16be'"], "", ""),
        (["PRAGMA journal_mode = WAL"], "", ""),
        ([], _KEYED, ""),
        ([], _KEYED, " WITHOUT ROWID"),
        ([], _KEYED.replace("PRIMARY KEY", "PRIMARY KEY DESC"), ""),
        ([], _COMPUTED, ""),
    ],
)
def test_files_of_any_form_have_the_rows_that_were_written(
    before: list[str], declared: str, suffix: str, tmp_path: Path
) -> None:
    rows = draw_rows(1)
    raw = read_report(write(tmp_path / "a.sqlite", rows, before=before, declared=declared, suffix=suffix))
    events = raw["nvtx"].select("start", "end", "text", "text_id").rows()
    assert events == [(row[0], row[1], row[4] or None, row[5]) for row in rows]
    assert raw.recorded["nvtx"] == len(rows)
    reals = [row[-1] for row in rows if row[-1] is not None]
    assert raw["payloads"]["double"].drop_nulls().to_list() == reals


def fetch(connection: Connection, query: str, kinds: str) -> Rows | str:
    """Return the rows of a query, or the reason of SQLite to refuse it."""
    try:
        return connection.fetch(query, kinds)
    except sqlite3.Error as error:
        return str(error)


def assert_equal_rows(compiled: Rows | str, plain: Rows | str, kinds: str) -> None:
    """Hold that both connections give the same rows, or refuse for the same reason; of odd numbers they know only that."""
    if isinstance(compiled, str) or isinstance(plain, str):
        assert compiled == plain
        return
    assert compiled.is_odd == plain.is_odd
    for kind, ours, theirs in zip(kinds, compiled.columns, plain.columns, strict=True):
        assert (kind == "i" and plain.is_odd) or ours.equals(theirs, null_equal=True)


def test_no_file_can_know_the_hash_of_its_texts() -> None:
    """Texts that share a hash would be compared each with each."""
    library = find_library()
    secret = None if library is None else (ctypes.c_uint64 * 2).in_dll(library.own, "secret")
    assert secret is None or (secret[0] and secret[1] % 2 == 1)


@settings(max_examples=count_draws(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), is_damaged=st.booleans())
def test_both_connections_are_equal(
    seed: int, is_damaged: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, chance = tmp_path_factory.mktemp("drawn") / "a.sqlite", random.Random(seed)
    write(path, draw_rows(seed, chance.randrange(600)), before=["PRAGMA page_size = 512"])
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 2, 8]) * is_damaged):
        data[chance.randrange(1024, len(data))] = chance.randrange(256)
    path.write_bytes(data)
    library, uri = find_library(), f"file:{path}?mode=ro"
    assert library is not None
    query = f"SELECT rowid, {', '.join(COLUMNS)} FROM NVTX_EVENTS NOT INDEXED"
    query = query.replace("text,", "CAST(text AS TEXT),").replace("doubleValue", "CAST(doubleValue AS REAL)")
    kinds = "iiiiitiir"
    try:
        compiled, plain = CompiledConnection(uri, len(data), library), PlainConnection(uri, len(data))
    except sqlite3.Error:
        return
    with closing(compiled), closing(plain):
        assert_equal_rows(fetch(compiled, query, kinds), fetch(plain, query, kinds), kinds)


def test_numbers_of_rows_that_the_file_has_no_room_for_are_no_counts(tmp_path: Path) -> None:
    """A damaged row id costs no more than its row, and is no reason to refuse the others."""
    path = tmp_path / "a.sqlite"
    path.write_bytes(RANK0.read_bytes())
    edit(path, "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET rowid = 1 << 40 WHERE rowid = 1487")
    assert len(read_report(path)["calls"]) == 1487


@pytest.mark.filterwarnings("ignore:.*programs of the file")
def test_names_are_equal_in_any_case_and_programs_are_named(tmp_path: Path) -> None:
    rows = {"NVTX_EVENTS": [push_pop(0, 1), push_pop(1, 2)]}
    path, plain = (write_export(tmp_path / name, rows) for name in ("a.sqlite", "b.sqlite"))
    edit(
        path,
        'ALTER TABLE NVTX_EVENTS RENAME COLUMN "end" TO "END"',
        "ALTER TABLE NVTX_EVENTS RENAME TO events",
        "ALTER TABLE events RENAME TO nvtx_events",
        "CREATE VIEW OSRT_API AS SELECT 1 AS start",
        "ALTER TABLE nvtx_events ADD COLUMN color AS (end + 1)",
        # the sign of kelvin, whose lower case is k, though not for SQLite
        'CREATE TABLE "CUPTI_ACTIVITY_KIND_\u212aERNEL" (start)',
    )
    raw = read_report(path)
    assert_frame_equal(raw["nvtx"].drop("color"), read_report(plain)["nvtx"].drop("color"))
    assert "`NVTX_EVENTS.color`, `OSRT_API` not read" in run("check", path).stdout
