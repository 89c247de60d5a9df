"""A report that cannot be read says why in one sentence, with a hint, and at once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from nsys_pp.errors import NsysPPError, ReportError
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.read.files import check_database, check_integrity, explain_sqlite, hold_file
from tests.breaks import BREAKS
from tests.cli.calls import RANK0, environment, run
from tests.read.tables import call, kernel, push_pop, strings, write_export
from tests.row_sums import check_row_sums
from tests.sql import edit, select


def _report(path: Path, rows: int = 2000, text: str | None = "range") -> Path:
    return write_export(path, {"NVTX_EVENTS": [push_pop(i, i + 1, text=text) for i in range(rows)]})


def _journal(path: Path) -> None:
    path.with_name(f"{path.name}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 504)


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _log(path: Path) -> None:
    """A log of another program; SQLite would make shared memory beside it, though the file has no such log."""
    path.with_name(f"{path.name}-wal").write_bytes(bytes(5000))


def _log_of_a_link(path: Path) -> None:
    """SQLite looks for logs beside the file that a link names."""
    real = path.rename(path.with_name("real.sqlite"))
    path.symlink_to(real)
    _log(real)


_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    **BREAKS,
    "short text": (lambda path: path.write_text("hi"), "is not a SQLite database"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(path.read_bytes())), "is compressed with gzip"),
    "zip": (lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 99), "is a zip archive"),
    "hdf": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 99), "is a HDF5 file"),
    "parquet": (lambda path: path.write_bytes(b"PAR1" + b"\0" * 99), "is a Parquet file"),
    "directory": (_make_directory, "is a folder, not"),
    "hot journal": (_journal, "is incomplete: a program writes it"),
    "strange log": (_log, "is incomplete: a program writes it"),
    "log of a link": (_log_of_a_link, "part of it is in `real.sqlite-wal`"),
    "hidden function": (lambda path: edit(path, "CREATE TABLE pragma_table_xinfo (x)"), "hides a function"),
}


@pytest.mark.parametrize("name", _DAMAGES)
def test_a_report_that_cannot_be_read_says_why(tmp_path: Path, name: str) -> None:
    damage, words = _DAMAGES[name]
    path = Path(shutil.copy(RANK0, tmp_path / "report.sqlite"))
    damage(path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ReportError) as caught:
        read_report(path)
    message, hint = caught.value.message, caught.value.hint
    assert message.startswith(f"`{path}` ")
    assert words in message
    assert not message.endswith(".")
    assert "\n" not in message
    assert hint
    assert sorted(os.listdir(tmp_path)) == before


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement)
print("ready", flush=True)
sys.stdin.read()
"""


def _hold(path: Path, *statements: str) -> subprocess.Popen[str]:
    """Run statements in another process, which stays in the middle of them."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), *statements],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        pytest.param(["BEGIN EXCLUSIVE"], "is locked by another program", id="exclusive lock"),
        pytest.param(
            ["PRAGMA journal_mode=WAL", "DELETE FROM NVTX_EVENTS"],
            "is incomplete: a program writes it",
            id="write-ahead log",
        ),
    ],
)
def test_a_report_that_is_being_written_says_so(tmp_path: Path, statements: list[str], words: str) -> None:
    path = _report(tmp_path / "report.sqlite")
    with _hold(path, *statements) as writer:
        with pytest.raises(ReportError, match=words):
            check_integrity(path, time_limit_s=60)
        with pytest.raises(ReportError, match=words) as caught:
            read_report(path)
        writer.kill()
        for stream in (writer.stdin, writer.stdout):
            assert stream is not None
            stream.close()
    assert caught.value.hint


@pytest.mark.parametrize(("mode", "left"), [("WAL", []), ("PERSIST", ["report.sqlite-journal"])])
def test_a_finished_journal_does_not_matter(tmp_path: Path, mode: str, left: list[str]) -> None:
    path = _report(tmp_path / "report.sqlite", rows=3)
    edit(path, f"PRAGMA journal_mode={mode}", "DELETE FROM NVTX_EVENTS WHERE rowid = 2")
    assert read_report(path)["nvtx"]["row"].to_list() == [1, 3]
    assert sorted(os.listdir(tmp_path)) == ["report.sqlite", *left]


@pytest.mark.parametrize("log", ["journal", "wal"])
def test_a_log_that_is_a_pipe_is_not_opened(tmp_path: Path, log: str) -> None:
    path = _report(tmp_path / "report.sqlite")
    os.mkfifo(f"{path}-{log}")
    with pytest.raises(ReportError, match=rf"report\.sqlite-{log}` is a pipe, not a file"):
        read_report(path)


@pytest.mark.filterwarnings("ignore:.*programs of the file")
def test_a_virtual_table_with_a_page_is_no_table(tmp_path: Path) -> None:
    """Its rows are made by a program, and may be those of a view."""
    path = _report(tmp_path / "report.sqlite")
    edit(
        path,
        "CREATE VIRTUAL TABLE ThreadNames USING fts5(nameId, priority, globalTid)",
        "INSERT INTO ThreadNames VALUES (1, 2, 3)",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage ="
        " (SELECT max(rootpage) FROM sqlite_master) WHERE name = 'ThreadNames'",
    )
    assert read_report(path)["thread_names"].is_empty()
    assert "short of ThreadNames (programs" in check_integrity(path, time_limit_s=60).stopped


_PAGE = 4096
_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
_SLOW = "hex(zeroblob(20000000))"


def _make_view(path: Path) -> None:
    edit(
        path,
        "ALTER TABLE NVTX_EVENTS RENAME TO t",
        f"CREATE VIEW NVTX_EVENTS AS {_ENDLESS} SELECT t.* FROM t, n",
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {_ENDLESS} SELECT i AS start, i AS end, i AS deviceId FROM n",
        f"CREATE VIEW StringIds2 AS {_ENDLESS} SELECT max(i) AS id FROM n",
    )


def _make_virtual_table(path: Path) -> None:
    edit(path, 'CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, "end", deviceId)')


def _make_slow_columns(path: Path) -> None:
    edit(
        path,
        "DROP TABLE NVTX_EVENTS",
        "CREATE TABLE NVTX_EVENTS (start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER, globalTid INTEGER,"
        f" text TEXT AS ({_SLOW}) VIRTUAL) WITHOUT ROWID",
        *(f"INSERT INTO NVTX_EVENTS VALUES ({number}, {number + 1}, 59, 1)" for number in range(20)),
    )


def make_endless_tree(path: Path) -> None:
    """Make pages whose children are one page, in levels: 300^5 rows in a file of a few pages."""
    path.unlink(missing_ok=True)
    _report(path, 60_000, text=None)
    data = bytearray(path.read_bytes())
    ((root,),) = select(path, "SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
    model = bytes(data[(root - 1) * _PAGE : root * _PAGE])
    assert model[0] == 0x05
    leaf = int.from_bytes(model[8:12], "big")
    chain = [root, *range(len(data) // _PAGE + 1, len(data) // _PAGE + 5), leaf]
    data += bytes(4 * _PAGE)
    for page, child in pairwise(chain):
        changed = bytearray(model)
        changed[8:12] = child.to_bytes(4, "big")
        for cell in range(int.from_bytes(model[3:5], "big")):
            at = int.from_bytes(model[12 + 2 * cell : 14 + 2 * cell], "big")
            changed[at : at + 4] = child.to_bytes(4, "big")
        data[(page - 1) * _PAGE : page * _PAGE] = changed
    data[28:32] = (len(data) // _PAGE).to_bytes(4, "big")
    path.write_bytes(data)


@pytest.mark.few(4)  # each file, and each command
@pytest.mark.parametrize("command", ["info", "summary", "project"])
@pytest.mark.parametrize("make", [_make_view, _make_virtual_table, _make_slow_columns, make_endless_tree])
def test_a_hostile_file_is_read_or_refused_soon(
    tmp_path: Path, command: str, make: Callable[[Path], None]
) -> None:
    path = _report(tmp_path / "a.sqlite", 200, text=None)
    make(path)
    begin = os.times()
    done = run(command, path, env=environment(PYTHONWARNINGS=""))
    assert "unforeseen" not in done.stderr
    assert done.code in (0, 1)
    if make is make_endless_tree:
        assert "is damaged" in done.stderr
    # time of processors: other work on the machine does not count
    assert sum(os.times()[:4]) - sum(begin[:4]) < 120


def _write(path: Path, rows: int) -> Path:
    return write_export(
        path,
        {
            "StringIds": strings("a", "b"),
            "NVTX_EVENTS": [push_pop(i, i + 5, text="x" * 20) for i in range(rows)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [call(i, i + 1, i) for i in range(rows)],
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(i + 2, i + 4, i) for i in range(rows)],
        },
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("small") / "a.sqlite", 400)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of more than `_SMALL_FILE_BYTES`, of which only the read tables are checked."""
    path = _write(tmp_path_factory.mktemp("large") / "a.sqlite", 40_000)
    assert path.stat().st_size > 4_000_000
    return path


def _damage(data: bytes, seed: int) -> bytes:
    """Flip bits, overwrite a run, or swap two pages; the header stays."""
    drawn, broken = random.Random(seed), bytearray(data)
    if seed % 3 == 0:
        for _ in range(drawn.randrange(1, 9)):
            broken[drawn.randrange(100, len(data))] ^= 1 << drawn.randrange(8)
    elif seed % 3 == 1:
        at = drawn.randrange(100, len(data) - 64)
        broken[at : at + 64] = drawn.randbytes(64)
    else:
        one, other = (drawn.randrange(1, len(data) // _PAGE) * _PAGE for _ in range(2))
        broken[one : one + _PAGE], broken[other : other + _PAGE] = (
            data[other : other + _PAGE],
            data[one : one + _PAGE],
        )
    return bytes(broken)


@pytest.mark.parametrize("seed", range(60))
def test_no_damage_that_sqlite_sees_is_silent(small: Path, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(_damage(small.read_bytes(), seed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_row_sums(path)
        except NsysPPError:
            return
    is_noted = any("is damaged, so rows may be" in str(note.message) for note in caught)
    assert is_noted or not check_integrity(path, time_limit_s=60).complaints


@pytest.mark.parametrize("added", ["CREATE TABLE notes (a)", "CREATE TABLE notes (a, b AS (a + 1))"])
def test_a_repeated_page_of_a_large_table_is_noted(large: Path, tmp_path: Path, added: str) -> None:
    """Its rows are there twice, and those of the page that it hides are missing: the number of rows is right."""
    path = tmp_path / "a.sqlite"
    data = bytearray(large.read_bytes())
    ((root,),) = select(
        large, "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
    )
    begin = (root - 1) * _PAGE
    first, second = (begin + at for at in _cells(data[begin : begin + _PAGE])[:2])
    data[second : second + 4] = data[first : first + 4]
    path.write_bytes(data)
    edit(path, added)
    with pytest.warns(UserWarning, match="is damaged, so rows may be missing or wrong"):
        build_report(read_report(path))


def _cells(page: bytes | bytearray) -> list[int]:
    count = int.from_bytes(page[3:5], "big")
    return [int.from_bytes(page[12 + 2 * at : 14 + 2 * at], "big") for at in range(count)]


def test_constraints_of_a_file_are_not_run(tmp_path: Path) -> None:
    """A check of `randomblob` would need gigabytes."""
    path = edit(
        tmp_path / "a.sqlite",
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
        "PRAGMA ignore_check_constraints = ON",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, CHECK (length(randomblob(900000000)) > 1))",
        *(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({i}, 999)" for i in range(99)),
    )
    assert check_integrity(path, time_limit_s=60).stopped == ""
    assert len(build_report(read_report(path)).gpu_ops) == 99


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_ERROR, "cannot be read: no such column: isBlocked"),
        (sqlite3.SQLITE_BUSY, "is locked by another program"),
        (sqlite3.SQLITE_IOERR_SHORT_READ, "is damaged"),
    ],
)
def test_errors_of_sqlite_are_told_by_their_code(code: int, words: str) -> None:
    error = sqlite3.OperationalError("no such column: isBlocked")
    error.sqlite_errorcode = code
    assert words in explain_sqlite(Path("a.sqlite"), error).message


@pytest.mark.parametrize("view", ["SELECT f(1)", "SELECT * FROM absent", "SELECT * FROM v"])
def test_a_view_that_does_not_work_is_no_damage(tmp_path: Path, view: str) -> None:
    path = write_export(tmp_path / "a.sqlite", {"NVTX_EVENTS": []})
    assert check_integrity(edit(path, f"CREATE VIEW v AS {view}"), time_limit_s=60).complaints == ()


@pytest.mark.parametrize("root", [0, 1])  # page of a table
@pytest.mark.parametrize(
    "program",
    [
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN costly NOT NULL AS (hex(zeroblob(400000000)))",
        "CREATE INDEX costly ON CUPTI_ACTIVITY_KIND_KERNEL (hex(zeroblob(n)))",
        "CREATE INDEX costly ON CUPTI_ACTIVITY_KIND_KERNEL (n) WHERE length(hex(zeroblob(n))) > 1",
    ],
)
def test_a_check_runs_no_program_of_a_file(tmp_path: Path, program: str, root: int) -> None:
    """A computed column or an index of expressions would need gigabytes; other tables are checked."""
    path = edit(
        tmp_path / "a.sqlite",
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, n)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, NULL)",
        "PRAGMA ignore_check_constraints = ON",
        program,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'zeroblob(n)', 'zeroblob(400000000)')",
    )
    found = check_integrity(path, time_limit_s=60)
    name = "CUPTI_ACTIVITY_KIND_KERNEL" if "ALTER" in program else "costly"
    assert found.stopped == f"short of {name} (programs of the file)"
    assert found.complaints == ()
    assert len(build_report(read_report(path)).gpu_ops) == 1
    edit(
        path,
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET rootpage = {root} WHERE name = 'StringIds'",
    )
    assert check_integrity(path, time_limit_s=60).complaints


@pytest.mark.filterwarnings("ignore:.*programs of the file")
def test_a_default_is_not_the_text_of_each_row(tmp_path: Path) -> None:
    """A column that was added later has its default in all older rows, which do not hold it."""
    path = tmp_path / "a.sqlite"
    write_export(
        path, {"NVTX_EVENTS": [{"start": i, "end": i + 1, "eventType": 59, "globalTid": 1} for i in range(9)]}
    )
    edit(path, f"ALTER TABLE NVTX_EVENTS ADD COLUMN text TEXT DEFAULT '{'n' * 900_000}'")
    assert read_report(path)["nvtx"]["text"].to_list() == [None] * 9


def test_a_second_look_at_a_file_keeps_the_locks_of_sqlite(tmp_path: Path) -> None:
    """By POSIX, a descriptor that is closed ends all locks of its process."""
    path = edit(
        tmp_path / "a.sqlite",
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)",
    )
    write = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('CREATE TABLE other (x)')"

    def can_write() -> bool:
        return subprocess.run([sys.executable, "-c", write], capture_output=True, check=False).returncode == 0

    with (
        hold_file(path),
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader,
    ):
        reader.execute("BEGIN").execute("SELECT * FROM StringIds").fetchall()
        check_database(path)
        assert not can_write()
    assert can_write()


_COSTLY = "TABLE costly (a, b AS (hex(zeroblob(400000000))) NOT NULL)"


@pytest.mark.parametrize(
    "forged",
    [
        f"sql = 'CREATE' || char(9) || '{_COSTLY}'",
        f"type = 'Table', sql = 'CREATE {_COSTLY}'",
        f"sql = 'CREATE {_COSTLY}'",
        "name = '5x', tbl_name = '5x', sql = 'CREATE TABLE \"5x\" (a)'",  # `quick_check(5x)` checks all tables
    ],
)
def test_no_check_runs_a_program_whose_definition_is_forged(tmp_path: Path, forged: str) -> None:
    path = edit(
        _report(tmp_path / "a.sqlite"),
        "CREATE TABLE costly (a)",
        "INSERT INTO costly VALUES (1)",
        "CREATE TABLE other (a, b AS (hex(zeroblob(400000000))) NOT NULL)",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET {forged} WHERE name = 'costly'",
    )
    found = check_integrity(path, time_limit_s=60)
    assert (found.complaints, found.stopped[:8]) == ((), "short of")
    assert ("5x" in found.stopped) == ("5x" in forged)
    assert len(read_report(path)["nvtx"]) == 2000


def test_names_of_facts_are_compared_as_they_are(tmp_path: Path) -> None:
    path = edit(
        Path(shutil.copy(RANK0, tmp_path)),
        "CREATE TABLE facts (name TEXT COLLATE NOCASE, value TEXT)",
        "INSERT INTO facts SELECT upper(name), value FROM TARGET_INFO_SYSTEM_ENV",
        "DROP TABLE TARGET_INFO_SYSTEM_ENV",
        "ALTER TABLE facts RENAME TO TARGET_INFO_SYSTEM_ENV",
    )
    assert "hostname" not in read_report(path)["facts"]["name"].to_list()


def test_a_plain_index_is_no_program(tmp_path: Path) -> None:
    path = edit(_report(tmp_path / "a.sqlite"), "CREATE INDEX where_start ON NVTX_EVENTS (start)")
    assert check_integrity(path, time_limit_s=60).stopped == ""
