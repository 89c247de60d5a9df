"""SQLite's own check of a file, within a time limit."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Timer

from msgspec import Struct

from nsys_pp.errors import ReportError
from nsys_pp.read.sqlite_file import check_database
from nsys_pp.read.sqlite_trees import has_endless_tree

_STEPS = 100_000  # of SQLite's machine between two looks at the interrupt
_MOST_COMPLAINTS = 1_000


class Integrity(Struct, frozen=True, kw_only=True):
    """Result of SQLite's check."""

    complaints: tuple[str, ...]  # () where the file is intact
    is_whole: bool  # the check was completed


def check_integrity(path: Path, *, time_limit_s: float) -> Integrity:
    """Check a file with SQLite's `integrity_check`; programs in the file (constraints, triggers) are not run.

    Args:
        path: A SQLite file.
        time_limit_s: After this time the check ends, and has found what it has found.

    Raises:
        ReportError: It cannot be opened.
    """
    uri = check_database(path)
    if has_endless_tree(path, [1]):
        return Integrity(complaints=("a page is part of the catalog many times",), is_whole=False)
    complaints: list[str] = []
    try:
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: 0, _STEPS)
            timer = Timer(time_limit_s, connection.interrupt)
            timer.daemon = True
            timer.start()
            try:
                for statement in ("PRAGMA ignore_check_constraints = ON", "PRAGMA trusted_schema = OFF"):
                    connection.execute(statement)
                for (text,) in connection.execute(f"PRAGMA integrity_check({_MOST_COMPLAINTS})"):
                    complaints += [line for line in text.splitlines() if not line.startswith("***")]
            finally:
                timer.cancel()
    except sqlite3.OperationalError as error:
        if "interrupt" in str(error):
            return Integrity(complaints=_drop_ok(complaints), is_whole=False)
        return Integrity(complaints=(*_drop_ok(complaints), str(error)), is_whole=False)
    except (sqlite3.Error, UnicodeError) as error:  # its messages need not be UTF-8
        text = "the catalog is not text" if isinstance(error, UnicodeError) else str(error)
        return Integrity(complaints=(*_drop_ok(complaints), text), is_whole=False)
    return Integrity(complaints=_drop_ok(complaints), is_whole=True)


def count_rows(path: Path, table: str) -> int | None:
    """Count the rows of a table by SQLite's own count; None where SQLite cannot."""
    with suppress(sqlite3.Error, UnicodeError, ReportError):
        uri = check_database(path)
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            quoted = table.replace('"', '""')
            return int(connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])
    return None


def _drop_ok(complaints: list[str]) -> tuple[str, ...]:
    return tuple(line for line in complaints if line != "ok")
