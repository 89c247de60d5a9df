"""A report that cannot be read says why in one sentence, with a hint, and at once."""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys_pp.errors import ReportError
from nsys_pp.read import read_report
from tests.read.tables import push_pop, write_export


def _report(path: Path, rows: int = 2000) -> Path:
    return write_export(path, {"NVTX_EVENTS": [push_pop(i, i + 1, text=f"range {i}") for i in range(rows)]})


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\xa5" * (len(data) - 8192 - 4096)
    path.write_bytes(data)


def _journal(path: Path) -> None:
    path.with_name(f"{path.name}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 504)


def _make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    connection.close()


_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "text": (lambda path: path.write_text("hello, this is no database\n" * 9), "is not a SQLite database"),
    "short text": (lambda path: path.write_text("hi"), "is not a SQLite database"),
    "encrypted": (
        lambda path: path.write_bytes(os.urandom(8192)),
        "not a SQLite database, or an encrypted one",
    ),
    "gzip": (lambda path: path.write_bytes(gzip.compress(path.read_bytes())), "is compressed with gzip"),
    "zip": (lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 99), "is a zip archive"),
    "hdf": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 99), "is a HDF5 file"),
    "parquet": (lambda path: path.write_bytes(b"PAR1" + b"\0" * 99), "is a Parquet file"),
    "truncated": (_truncate, "is truncated: it has"),
    "just a header": (lambda path: os.truncate(path, 50), "is truncated"),
    "scrambled": (_scramble, "is damaged"),
    "absent": (lambda path: path.unlink(), "does not exist"),
    "directory": (_make_directory, "is a directory"),
    "hot journal": (_journal, "is being written by another program"),
    "foreign": (_foreign, "has no table that Nsight Systems exports"),
}


@pytest.mark.parametrize("name", _DAMAGES)
def test_a_report_that_cannot_be_read_says_why(tmp_path: Path, name: str) -> None:
    damage, words = _DAMAGES[name]
    path = _report(tmp_path / "report.sqlite")
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


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _report(tmp_path / "report.sqlite")
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser may read it all the same

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ReportError, match="permission denied"):
        read_report(path)


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
    "statements",
    [
        pytest.param(["BEGIN EXCLUSIVE"], id="exclusive lock"),
        pytest.param(["PRAGMA journal_mode=WAL", "DELETE FROM NVTX_EVENTS"], id="write-ahead log"),
    ],
)
def test_a_report_that_is_being_written_says_so(tmp_path: Path, statements: list[str]) -> None:
    path = _report(tmp_path / "report.sqlite")
    with _hold(path, *statements) as writer:
        with pytest.raises(ReportError, match="is being written by another program") as caught:
            read_report(path)
        writer.kill()
        for stream in (writer.stdin, writer.stdout):
            assert stream is not None
            stream.close()
    assert caught.value.hint


def test_what_is_not_committed_is_not_seen(tmp_path: Path) -> None:
    path = _report(tmp_path / "report.sqlite", rows=3)
    with _hold(path, "BEGIN", "DELETE FROM NVTX_EVENTS") as writer:
        assert read_report(path)["nvtx"].height == 3
        writer.kill()
        for stream in (writer.stdin, writer.stdout):
            assert stream is not None
            stream.close()


def test_a_finished_write_ahead_database_is_read_without_a_trace(tmp_path: Path) -> None:
    path = _report(tmp_path / "report.sqlite", rows=3)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("DELETE FROM NVTX_EVENTS WHERE rowid = 2")
    connection.close()
    assert path.read_bytes()[18] == 2
    assert read_report(path)["nvtx"]["row"].to_list() == [1, 3]
    assert os.listdir(tmp_path) == ["report.sqlite"]


def test_a_kept_journal_that_is_done_does_not_matter(tmp_path: Path) -> None:
    path = _report(tmp_path / "report.sqlite", rows=3)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=PERSIST")
        connection.execute("DELETE FROM NVTX_EVENTS WHERE rowid = 2")
    connection.close()
    assert path.with_name("report.sqlite-journal").exists()
    assert read_report(path)["nvtx"]["row"].to_list() == [1, 3]
