"""Tables that numpy decodes from their pages have exactly the rows that SQLite reads, in files of any form."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import RawReport
from nsys_pp.read import read_report, sqlite, sqlite_plain
from nsys_pp.read.table import Source
from tests.conftest import find_shared_reports
from tests.read.tables import push_pop, strings, write_export

_EDGES = [
    *(0, 1, -1, 2, 127, -128, 128, 32767, -32768, 32768, 8388607, -8388608, 8388608, 2**31 - 1, -(2**31)),
    *(2**31, 2**47 - 1, -(2**47), 2**47, 2**63 - 1, -(2**63), None),
]
_NVTX = (
    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT)"
)
_FUZZED_FILES = 45


def _read(path: Path, monkeypatch: pytest.MonkeyPatch, *, at_least: int) -> RawReport | ReportError:
    monkeypatch.setattr(sqlite, "_LARGE_TABLE_ROWS", at_least)
    try:
        return read_report(path, threads=2)
    except ReportError as error:
        return error


def _compare(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Read a file with SQLite alone and with numpy where possible; return the frames that numpy decoded."""
    decoded: set[str] = set()

    def spy(file: Path, sources: Sequence[Source], *rest: object, **more: object) -> object:
        found = sqlite_plain.read_plain(file, sources, *rest, **more)  # type: ignore[arg-type]
        decoded.update(sources[at].table.frame for at in found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "read_plain", spy)
        expected = _read(path, patch, at_least=1 << 62)
        patch.setattr(sqlite_plain, "_BLOCK_BYTES", 1 << 13)
        actual = _read(path, patch, at_least=0)
    if isinstance(expected, ReportError):
        # a part that is damaged in a way that does not concern the rows may be read all the same
        assert decoded or str(actual) == str(expected)
        return decoded
    assert isinstance(actual, RawReport), actual
    assert actual.recorded == expected.recorded
    for name, rows in expected.frames.items():
        assert_frame_equal(actual[name], rows)
    return decoded


def _fill(connection: sqlite3.Connection, count: int = 3_000, *, width: int = 60, seed: int = 1) -> None:
    draw = random.Random(seed)
    connection.executemany(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, text) VALUES (?, ?, 59, ?, ?)",
        [
            (
                draw.choice(_EDGES),
                draw.choice(_EDGES),
                draw.choice(_EDGES),
                draw.choice(["é", "x"]) * draw.randrange(width),
            )
            for _ in range(count)
        ],
    )


def _write(path: Path, *pragmas: str, table: str = _NVTX, width: int = 60) -> Path:
    connection = sqlite3.connect(path)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(table)
    _fill(connection, width=width)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize(
    "path", find_shared_reports() or [None], ids=lambda path: path.stem if path else "none"
)
def test_a_real_report_is_the_same(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if path is None:
        pytest.skip("no real reports: set NSYS_PP_SHARED_REPORTS to a folder of them")
    assert _compare(path, monkeypatch)


@pytest.mark.parametrize("size", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
@pytest.mark.parametrize("vacuum", ["NONE", "FULL"])
def test_pages_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, vacuum: str) -> None:
    path = _write(tmp_path / "a.sqlite", f"page_size = {size}", f"auto_vacuum = {vacuum}")
    assert "nvtx" in _compare(path, monkeypatch)


def test_deleted_rows_and_row_ids_beyond_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "a.sqlite", "page_size = 512")
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM NVTX_EVENTS WHERE rowid % 7 < 3 OR rowid BETWEEN 500 AND 900")
        connection.execute("UPDATE NVTX_EVENTS SET rowid = -rowid WHERE rowid % 5 = 0")
        connection.execute("UPDATE NVTX_EVENTS SET rowid = rowid + 5000000000 WHERE rowid > 2000")
        connection.execute("UPDATE NVTX_EVENTS SET rowid = 9223372036854775807 WHERE rowid = 1005")
    connection.close()
    assert "nvtx" in _compare(path, monkeypatch)
    with sqlite3.connect(path) as connection:
        _fill(connection, 500)
    connection.close()
    assert "nvtx" in _compare(path, monkeypatch)
    connection = sqlite3.connect(path)
    connection.execute("VACUUM")
    connection.close()
    assert "nvtx" in _compare(path, monkeypatch)


def test_a_primary_key_is_the_row_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(_NVTX)
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        rows = [(i * i - 40, f"name {i}" if i % 3 else None) for i in range(2_000)]
        connection.executemany("INSERT OR IGNORE INTO StringIds VALUES (?, ?)", rows)
    connection.close()
    assert "strings" in _compare(path, monkeypatch)


def test_headers_longer_than_a_byte_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ", ".join(f"c{i} TEXT DEFAULT 'some text'" for i in range(150))
    path = _write(tmp_path / "a.sqlite", table=f"{_NVTX[:-1]}, {more})")
    assert "nvtx" in _compare(path, monkeypatch)


def test_bytes_reserved_in_each_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA page_size = 1024")
    connection.execute("CREATE TABLE first (a)")
    connection.commit()
    connection.close()
    data = bytearray(path.read_bytes())
    data[20] = 32  # the table is empty, so that no cell lies in these bytes but those of the catalog
    path.write_bytes(data)
    try:
        with sqlite3.connect(path) as connection:
            connection.execute("VACUUM")
            connection.execute(_NVTX)
            _fill(connection)
        connection.close()
    except sqlite3.DatabaseError:
        pytest.skip("this SQLite does not accept the changed header")
    assert path.read_bytes()[20] == 32
    assert "nvtx" in _compare(path, monkeypatch)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (_NVTX, "ALTER TABLE NVTX_EVENTS ADD COLUMN textId INTEGER DEFAULT 5"),
        (_NVTX, "UPDATE NVTX_EVENTS SET start = 1.5 WHERE rowid = 77"),
        (_NVTX, "UPDATE NVTX_EVENTS SET end = 'abc' WHERE rowid = 77"),
        (_NVTX, "UPDATE NVTX_EVENTS SET text = printf('%.9000c', 'x') WHERE rowid = 77"),
        (_NVTX.replace("text TEXT", "text"), "UPDATE NVTX_EVENTS SET text = 12 WHERE rowid = 77"),
        (f"{_NVTX[:-1]}, textId INTEGER AS (start + 1))", "SELECT 1"),
        (_NVTX.replace("start INTEGER", "rowid INTEGER, start INTEGER"), "SELECT 1"),
        (_NVTX.replace("start INTEGER", "textId INTEGER PRIMARY KEY DESC, start INTEGER"), "SELECT 1"),
        (
            f"{_NVTX.replace('start INTEGER', 'id INTEGER PRIMARY KEY, start INTEGER')} WITHOUT ROWID",
            "SELECT 1",
        ),
    ],
    ids=["added", "real", "word", "overflow", "number", "generated", "hidden id", "descending", "no ids"],
)
def test_unusual_tables_are_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, change: str
) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(table)
        if "WITHOUT" in table:
            connection.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 3, 59, 4, 'x')")
        else:
            _fill(connection, 300)
        connection.execute(change)
    connection.close()
    assert "nvtx" not in _compare(path, monkeypatch)


@pytest.mark.parametrize("pragma", ["encoding = 'UTF-16le'", "journal_mode = WAL"])
def test_unusual_files_are_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pragma: str
) -> None:
    assert not _compare(_write(tmp_path / "a.sqlite", pragma), monkeypatch)


def test_broken_and_blob_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_export(
        tmp_path / "a.sqlite", {"StringIds": strings(*"abcd"), "NVTX_EVENTS": [push_pop(0, 1)]}
    )
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'61ff62' AS TEXT) WHERE id = 1")
        connection.execute("UPDATE StringIds SET value = x'6100c3' WHERE id = 2")
        connection.execute("UPDATE StringIds SET value = '' WHERE id = 3")
    connection.close()
    assert {"strings", "nvtx"} <= _compare(path, monkeypatch)


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(_EDGES) | st.integers(-(2**63), 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1) | st.none() | st.floats(allow_nan=False),
            st.sampled_from([34, 59, 60, 1]),
            st.text(max_size=80) | st.none() | st.binary(max_size=20),
        ),
        max_size=40,
    ),
    size=st.sampled_from([512, 4096]),
)
def test_random_tables(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]], size: int
) -> None:
    path = tmp_path_factory.mktemp("random") / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {size}")
    connection.execute(_NVTX)
    connection.executemany(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES (?, ?, ?, ?)",
        [(*row[:3], row[3].replace("\ud800", "") if isinstance(row[3], str) else row[3]) for row in rows],
    )
    connection.commit()
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        _compare(path, patch)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    whole = _write(tmp_path / "a.sqlite", "page_size = 512", width=30).read_bytes()
    draw, path, decoded = random.Random(seed), tmp_path / "b.sqlite", 0
    for _ in range(_FUZZED_FILES // 3):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 3, 30])):
            page = draw.randrange(1, len(data) // 512) * 512
            data[page + draw.choice([draw.randrange(512), draw.randrange(20)])] = draw.choice(
                [0, 255, draw.randrange(256)]
            )
        if draw.random() < 0.1:
            data = data[: draw.randrange(512, len(data))]
        path.write_bytes(data)
        decoded += "nvtx" in _compare(path, monkeypatch)
    assert decoded  # not all are refused at once
