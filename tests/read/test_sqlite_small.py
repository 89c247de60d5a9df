"""Small files that are read without SQLite are intact for SQLite, and hold the same rows; all others are left to it."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.arrays.core import load_core
from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import RawReport
from nsys_pp.read import inspect_report, read_report, sqlite, sqlite_small
from nsys_pp.read.sqlite_file import read_stamp
from nsys_pp.read.sqlite_pages import UnusualPageError
from nsys_pp.read.sqlite_small import SoundFile, check_small, open_small
from nsys_pp.read.sqlite_sound import find_rows, load_file, walk_trees
from tests.conftest import find_shared_reports
from tests.draws import count_draws
from tests.read.tables import Row, call, kernel, push_pop, strings, write_export
from tests.read.test_sqlite_plain import assert_equal, damage, draw_rows, write

Outcome = tuple[RawReport | str, list[str]]


@pytest.fixture(autouse=True)
def forgotten_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    if load_core() is None:
        pytest.skip("no compiled functions: SQLite reads all files")
    monkeypatch.setattr(sqlite_small, "_known", {})


def read_or_fail(path: Path) -> Outcome:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            raw: RawReport | str = read_report(path)
        except ReportError as error:
            raw = error.message
    return raw, [str(warning.message) for warning in caught]


def inspect_or_fail(path: Path) -> str:
    try:
        inspect_report(path)
    except ReportError as error:
        return error.message
    return ""


def find_sound(path: Path) -> SoundFile | None:
    """Read a file as a small one; None if it is left to SQLite."""
    small = open_small(path, read_stamp(path))
    return None if small is None else check_small(small)


def assert_read_equally(path: Path) -> None:
    """Check that a file with known tables is read, refused and warned of as SQLite does it."""
    small, inspected = read_or_fail(path), inspect_or_fail(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "open_small", lambda *_: None)
        queried = read_or_fail(path)
        assert inspected == inspect_or_fail(path)
    assert_equal(small[0], queried[0])
    assert small[1] == queried[1]
    if isinstance(small[0], RawReport) and isinstance(queried[0], RawReport):
        assert small[0].tally == queried[0].tally
        assert small[0].tables == queried[0].tables


def know(path: Path) -> None:
    """Have SQLite parse the tables of a file."""
    with warnings.catch_warnings(), suppress(ReportError):
        warnings.simplefilter("ignore")
        read_report(path)


@pytest.mark.parametrize(
    "path", find_shared_reports() or [None], ids=lambda path: path.stem if path else "none"
)
def test_real_reports_are_equal(path: Path | None) -> None:
    if path is None:
        pytest.skip("no real reports: set NSYS_PP_SHARED_REPORTS to a folder of them")
    know(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        [[other]] = connection.execute("SELECT count(*) FROM sqlite_master WHERE type <> 'table'")
    assert (find_sound(path) is None) == bool(other)  # indices are left to SQLite
    assert_read_equally(path)


def test_all_kinds_of_tables_are_equal(tmp_path: Path) -> None:
    tables: dict[str, Sequence[Row]] = {
        "StringIds": strings("ok", "", "größe", "cudaLaunchKernel_v7000"),
        "NVTX_EVENTS": [
            push_pop(0, 9, text="a"),
            push_pop(1, None, textId=2),
            push_pop(2, 3, doubleValue=2.5),
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(0, 1, 7), call(2, 3, 1 << 40)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(4, 5, 7)],
        "TARGET_INFO_SYSTEM_ENV": [
            {"name": "Hostname", "value": "node"},
            {"name": "UserName", "value": "secret"},
            {"name": "Hostname", "value": None},
        ],
        "META_DATA_CAPTURE": [
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "RANK=3"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": "TOKEN=secret"},
            {"name": None, "value": ""},
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [],
    }
    path = write_export(tmp_path / "a.sqlite", tables)
    know(path)
    assert find_sound(path) is not None
    assert_read_equally(path)


def test_names_without_values_are_equal(tmp_path: Path) -> None:
    rows = [{"name": name, "value": None} for name in ("Hostname", "DeviceEnvironment")]
    path = write_export(
        tmp_path / "a.sqlite", {"TARGET_INFO_SYSTEM_ENV": rows, "NVTX_EVENTS": [push_pop(0, 1)]}
    )
    know(path)
    assert find_sound(path) is not None
    assert_read_equally(path)


@pytest.mark.parametrize("page_bytes", [512, 1024, 4096, 16384, 65536])
def test_pages_of_any_size_are_equal(page_bytes: int, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite", draw_rows(page_bytes, 3_000), before=[f"PRAGMA page_size = {page_bytes}"]
    )
    know(path)
    assert find_sound(path) is not None
    assert_read_equally(path)


@pytest.mark.parametrize(
    ("after", "is_sound"),
    [
        (["DELETE FROM NVTX_EVENTS WHERE rowid % 30 = 0"], True),  # free blocks in pages
        (["DELETE FROM NVTX_EVENTS WHERE rowid BETWEEN 200 AND 900"], False),  # free pages
        (["DELETE FROM NVTX_EVENTS WHERE rowid BETWEEN 200 AND 900", "VACUUM"], True),
        (["DELETE FROM NVTX_EVENTS", "VACUUM"], True),
        (["UPDATE NVTX_EVENTS SET rowid = rowid + 5000000000"], True),
        (["UPDATE NVTX_EVENTS SET rowid = rowid + 5000000000", "VACUUM"], True),
        (["UPDATE StringIds SET id = -id", "VACUUM"], True),
        (["UPDATE NVTX_EVENTS SET text = printf('%.*c', 9000, 'y') WHERE rowid = 77", "VACUUM"], True),
        (["UPDATE NVTX_EVENTS SET text = x'ff00' WHERE rowid = 77"], False),
        (["UPDATE NVTX_EVENTS SET text = CAST(x'ff' AS TEXT) WHERE rowid = 77"], True),
        (["UPDATE NVTX_EVENTS SET text = 'a' || char(0) || 'b' WHERE rowid = 77"], True),
        (["UPDATE NVTX_EVENTS SET end = 'later' WHERE rowid = 77"], False),
        (
            ["UPDATE NVTX_EVENTS SET end = 2.0e30 WHERE rowid = 77"],
            True,
        ),  # a column for SQLite in a sound file
        (["ALTER TABLE NVTX_EVENTS ADD COLUMN textId2 INTEGER"], False),  # rows with fewer values
        (["CREATE INDEX by_start ON NVTX_EVENTS (start)"], False),
        (["CREATE VIEW shown AS SELECT * FROM NVTX_EVENTS"], False),
        (["CREATE TABLE none (a INTEGER) STRICT"], False),
        (["CREATE TABLE none (a TEXT COLLATE NOCASE)"], False),
        (["CREATE TABLE none (a INTEGER PRIMARY KEY, b) WITHOUT ROWID"], False),
        (["CREATE TABLE none (a INTEGER, b AS (a))"], False),
        (["CREATE TABLE none (a INTEGER CHECK (a > 5))", "INSERT INTO none VALUES (9)"], True),
    ],
)
def test_changed_tables_are_equal(after: list[str], is_sound: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", draw_rows(1, 1_000), after=after)
    know(path)
    assert (find_sound(path) is not None) == is_sound
    assert_read_equally(path)


@pytest.mark.parametrize(
    "before", [["PRAGMA auto_vacuum = FULL"], ["PRAGMA encoding = 'UTF-16le'"], ["PRAGMA journal_mode = WAL"]]
)
def test_unusual_files_are_left_to_sqlite(before: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", draw_rows(3), before=before)
    know(path)
    assert find_sound(path) is None
    assert_read_equally(path)


def test_tables_are_parsed_by_sqlite_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", draw_rows(4))
    assert find_sound(path) is None
    know(path)
    assert find_sound(path) is not None
    assert find_sound(write(tmp_path / "b.sqlite", draw_rows(5))) is not None
    other = write_export(tmp_path / "c.sqlite", {"NVTX_EVENTS": [push_pop(0, 1)]})
    assert find_sound(other) is None


_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = OFF")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_program_has_locked_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", draw_rows(4))
    know(path)
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "locked\n"
        assert find_sound(path) is None
        writer.communicate("")
    assert find_sound(path) is not None


def test_large_files_are_left_to_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.sqlite", draw_rows(4))
    know(path)
    monkeypatch.setattr(sqlite_small, "MOST_BYTES", path.stat().st_size - 1)
    assert find_sound(path) is None


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("intact") / "a.sqlite"
    after = ["UPDATE NVTX_EVENTS SET text = printf('%.*c', 900, 'y') WHERE rowid = 77", "VACUUM"]
    after += ["DELETE FROM NVTX_EVENTS WHERE rowid % 90 = 0"]
    return write(path, draw_rows(6, 300), before=["PRAGMA page_size = 512"], after=after).read_bytes()


@settings(max_examples=count_draws(120), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_files_are_read_as_by_sqlite(
    seed: int, intact: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "a.sqlite").write_bytes(intact)
    know(folder / "a.sqlite")
    path = folder / "b.sqlite"
    path.write_bytes(damage(bytearray(intact), random.Random(seed)))
    assert_read_equally(path)


@settings(max_examples=count_draws(500), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_files_that_pass_the_check_are_intact_for_sqlite(
    seed: int, intact: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("checked")
    (folder / "a.sqlite").write_bytes(intact)
    if not sqlite_small._known:  # the fixture forgets schemas once for all examples
        know(folder / "a.sqlite")
    path, chance = folder / "b.sqlite", random.Random(seed)
    data = bytearray(intact)
    page = chance.randrange(len(data) // 512) * 512
    at = chance.choice([page + chance.randrange(24), page + chance.randrange(512), chance.randrange(100)])
    data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), chance.randrange(256)])
    path.write_bytes(data)
    sound = find_sound(path)
    if sound is None:
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        for name, count in sound.count_rows().items():
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchall() == [(count,)]


def test_pages_in_a_circle_are_refused(intact: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(intact)
    pages, buffer = load_file(path, len(intact))
    interior = [page for page in range(2, pages.count + 1) if buffer[(page - 1) * 512] == 5]
    assert interior
    for page in interior:  # its last child is itself
        buffer[(page - 1) * 512 + 8 : (page - 1) * 512 + 12] = np.frombuffer(
            page.to_bytes(4, "big"), np.uint8
        )
        with pytest.raises(UnusualPageError):
            walk_trees(pages, buffer, np.array([page]))


def test_the_catalog_alone_is_walked(intact: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(intact)
    pages, buffer = load_file(path, len(intact))
    trees = walk_trees(pages, buffer, np.array([1]))
    assert find_rows(pages, buffer, trees, 1).bounds == [0, 2]
