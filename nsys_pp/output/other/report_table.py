"""Writer of a table into a report, or into a copy of it, in one transaction."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from nsys_pp.errors import ReportError

LOCK_TIMEOUT_S = 5.0  # time for another program to release its lock

_MAGIC = b"SQLite format 3\0"
_ANY_WRITE = 0o222
_COPY_HINT = "write a copy with the table instead: `--steptask FOLDER`"
_EXPORT_HINT = "name the SQLite export: `nsys export --type sqlite` makes it"
_KINDS = {
    ".nsys-rep": ("a recording that is not exported", _EXPORT_HINT),
    ".qdrep": ("a recording that is not exported", _EXPORT_HINT),
    ".nspart": ("a part", "name the SQLite export that it was extracted from"),
}
# parts of SQLite's messages on file systems without locks, which are common on clusters
_NO_LOCKS = ("disk i/o error", "locking protocol")


class Rows(Struct, frozen=True):
    """A table to write: its name, its columns in order, and its rows."""

    table: str
    columns: Mapping[str, type]
    rows: Sequence[tuple[Any, ...]]


def check_target(path: Path, *, in_place: bool) -> None:
    """Refuse a report if a table cannot be added to it.

    Args:
        path: A report.
        in_place: Whether the report itself is to be changed, not a copy.

    Raises:
        ReportError: The report is not a SQLite export, or it is read-only and `in_place` is set.
    """
    with _explained(path):
        if path.is_dir():
            kind, hint = "a folder of tables", _EXPORT_HINT
        elif (header := _read_magic(path)) != _MAGIC:
            kind, hint = _KINDS.get(path.suffix, ("another file" if header else "empty", _EXPORT_HINT))
        elif in_place and not (path.stat().st_mode & _ANY_WRITE and os.access(path, os.W_OK)):
            raise ReportError(f"cannot write into `{path}`: it is read-only", _COPY_HINT)
        else:
            return
    raise ReportError(f"no table can be added to `{path}`: it is {kind}, not a SQLite export", hint)


def copy_report(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a SQLite database, including its write-ahead log.

    Raises:
        ReportError: The database cannot be read.
        OSError: The disk is full.
    """
    with _explained(source):
        try:
            _back_up(source, target, "mode=ro")
        except _sqlite3().OperationalError as error:
            if not any(sign in str(error).lower() for sign in _NO_LOCKS):
                raise
            _back_up(source, target, "mode=ro&immutable=1")


def add_table(path: Path, rows: Rows, *, copied_from: Path | None = None) -> None:
    """Add or replace a table of a database in one transaction.

    Args:
        path: The database.
        rows: The table.
        copied_from: Original of a database that is a private copy. The copy is deleted on failure, so it
            needs no journal.

    Raises:
        ReportError: Another program is writing it, or it is damaged or read-only.
        OSError: The disk is full.
    """
    import sqlite_utils

    with _explained(copied_from or path), closing(_connect(path, "mode=rw")) as connection:
        database = sqlite_utils.Database(connection, execute_plugins=False)
        if copied_from is not None:
            connection.execute("PRAGMA journal_mode = OFF").fetchall()
            connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f'DROP TABLE IF EXISTS "{rows.table}"')
            connection.execute(database.create_table_sql(rows.table, dict(rows.columns)))
            # not `insert_all`: some versions of sqlite-utils commit early
            marks = ", ".join("?" * len(rows.columns))
            connection.executemany(f'INSERT INTO "{rows.table}" VALUES ({marks})', rows.rows)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def _back_up(source: Path, target: Path, mode: str) -> None:
    with (
        closing(_connect(source, mode)) as original,
        closing(_connect(target, "mode=rwc")) as copy,
    ):
        # blocks writers; a backup alone would wait for them forever
        original.execute("BEGIN")
        original.execute("SELECT 1 FROM sqlite_master").fetchone()
        original.backup(copy)


def _connect(path: Path, mode: str) -> Any:
    return _sqlite3().connect(
        f"file:{quote(os.fsencode(path.absolute()))}?{mode}", uri=True, timeout=LOCK_TIMEOUT_S
    )


def _sqlite3() -> Any:
    """Return the sqlite3 module that sqlite-utils uses; it may not be Python's."""
    from sqlite_utils import utils

    return utils.sqlite3  # type: ignore[attr-defined]


def _read_magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_MAGIC))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise a `ReportError` for errors of the system and of SQLite."""
    sqlite3 = _sqlite3()
    try:
        yield
    except FileNotFoundError:
        raise ReportError(f"`{path}` does not exist", "check the name and the folder") from None
    except OSError as error:
        raise ReportError(f"`{path}` cannot be opened: {error.strerror}", "check its permissions") from None
    except sqlite3.DatabaseError as error:
        message = str(error).lower()
        if "locked" in message:
            raise ReportError(
                f"`{path}` is being written by another program",
                "wait until that program is done, or close it, and try again",
            ) from None
        if "readonly" in message or "unable to open" in message:
            raise ReportError(
                f"cannot write into `{path}`: its file or folder is read-only", _COPY_HINT
            ) from None
        if "full" in message:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise ReportError(
            f"`{path}` cannot be used: SQLite reports: {error}",
            "copy it again, or export it again from the `.nsys-rep`",
        ) from None
