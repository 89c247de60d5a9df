"""Checks of files before they are read: each defect is one clear sentence.

SQLite itself would report "malformed", or wait, or write: it rolls back a journal that it finds, and creates
shared memory next to a database in write-ahead mode.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import TIMEOUT_MAX, Lock, Timer
from urllib.parse import quote

from msgspec import Struct

from nsys_pp.errors import ReportError, missing_error, result_code


def unreadable_error(path: str | Path, error: OSError) -> ReportError:
    """Return the error of a file or folder that cannot be read."""
    if isinstance(error, PermissionError):
        return ReportError(
            f"`{path}` may not be read: permission denied", "ask its owner, or copy it where you may read it"
        )
    return ReportError(
        f"`{path}` cannot be read: {error.strerror or error}", "check its name and its disk, or copy it again"
    )


def check_regular(path: Path) -> None:
    """Check that a path is no pipe, socket or device: to open one may wait for ever. Absent files pass.

    Raises:
        ReportError: It is one.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ReportError(f"`{path}` is {kind}, not a file", "write its contents to a file first")


IMMUTABLE = "&immutable=1"  # at the end of a URI: no locks, no journal
# Result codes of SQLite for a file that another program uses.
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Likewise on file systems without locks, which are common on clusters.
NO_LOCKS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL)
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

_OTHER_KINDS = {
    b"PK\x03\x04": ("a zip archive, or a part", "unpack it, or name the part `.nspart`"),
    b"\x1f\x8b": ("compressed with gzip", "unpack it first with `gunzip`"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it first with `zstd -d`"),
    b"BZh": ("compressed with bzip2", "unpack it first with `bunzip2`"),
    b"\xfd7zXZ\x00": ("compressed with xz", "unpack it first with `xz -d`"),
    b"\x89HDF": ("a HDF5 file", "export again with `nsys export --type sqlite`"),
    b"PAR1": ("a Parquet file", "pass the folder of `nsys export --type parquetdir`"),
}

_EXPORT_HINT = "make one with `nsys export --type sqlite`"


def check_database(path: Path) -> str:
    """Check that `path` is a complete SQLite database that no program is writing.

    Returns:
        URI that opens it without writes to it or its folder.

    Raises:
        ReportError: It is not.
    """
    header = _read_header(path)
    if not header.startswith(_MAGIC):
        raise _explain_foreign(path, header)
    real = os.path.realpath(path)  # beside which SQLite looks
    for log, is_used in ((Path(f"{real}-journal"), _is_hot), (Path(f"{real}-wal"), _size)):
        check_regular(log)
        if is_used(log):  # SQLite opens a `-wal` whatever the mode is, and makes shared memory next to it
            raise ReportError(
                f"`{path}` is incomplete: a program writes it, or was ended; part of it is in `{log.name}`",
                "close that program; if none runs, `sqlite3 FILE 'PRAGMA journal_mode=DELETE'` completes it",
            )
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    is_page_count_valid = pages > 0 and header[24:28] == header[92:96]
    size = _stat(path).st_size
    if len(header) < _HEADER_BYTES or (is_page_count_valid and size < pages * page_bytes):
        promised = f" of {pages * page_bytes:,}" if is_page_count_valid else ""
        raise ReportError(
            f"`{path}` is truncated: it has {size:,}{promised} bytes",
            "copy it again, or export it again from the `.nsys-rep`",
        )
    # in write-ahead mode, all is in the file, so it can be read without shared memory
    return name_uri(path, "ro") + IMMUTABLE * (2 in header[18:20])


def name_uri(path: Path, mode: str) -> str:
    """Return the URI by which SQLite opens a file in a mode: "ro", "rw" or "rwc"."""
    # quoted as bytes: a name need not be UTF-8 and may contain `?`, `#` or `%`
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"


COPY_ID = 0x6E737072  # of SQLite's header: a copy by `nsys-pp scrub`


def is_scrubbed(path: Path) -> bool:
    """Return whether a database is a copy by `nsys-pp scrub`, which lacks what only `merge --show` draws."""
    return int.from_bytes(_read_header(path)[68:72], "big") == COPY_ID


def find_state(path: Path) -> tuple[int, int]:
    """Return the size and the time of the last change, which change with each write; nothing is opened.

    Raises:
        ReportError: It has vanished.
    """
    status = _stat(path)
    return status.st_size, status.st_mtime_ns


# SQL of `sqlite_master AS t`: tables that have rows of their own. A page does not tell: a file may give one
# to a virtual table, whose rows a program makes; SQLite writes its definition in other words.
STORED = "t.type = 'table' AND t.sql LIKE 'CREATE TABLE %'"

# SQL of `pragma_table_xinfo`: columns that are generated or hidden, or have a long default, which may be the
# value of each row; exports have no defaults.
UNSTORED = "hidden OR coalesce(length(dflt_value), 0) > 100"


# Why the others are not read.
PROGRAMS = (
    "views, virtual tables, and columns that are generated or have a long default are programs of the file"
)


# Tables of a file that would stand for functions of SQLite, which tell the columns of tables.
HIDING = r"SELECT CAST(name AS TEXT) FROM sqlite_master WHERE name LIKE 'pragma\_%' ESCAPE '\'"


def hiding_error(name: str) -> sqlite3.Error:
    """Return the error of a file that has such a table."""
    return sqlite3.DatabaseError(f"its table `{name}` hides a function of SQLite")


def quote_name(name: str) -> str:
    """Quote a name of a table or column of SQLite."""
    return '"' + name.replace('"', '""') + '"'


def busy_error(path: Path) -> ReportError:
    """Return the error of a report that another program is writing."""
    return ReportError(
        f"`{path}` is being written by another program",
        "wait until that program has finished, or close it, and try again",
    )


def damaged_error(path: Path) -> ReportError:
    """Return the error of a report that SQLite cannot read."""
    return ReportError(
        f"`{path}` is damaged: SQLite cannot read all of it",
        "copy it again, or export it again from the `.nsys-rep`",
    )


def explain_sqlite(path: Path, error: sqlite3.Error) -> ReportError:
    """Return the error of a report for one of SQLite, by its result code."""
    code = result_code(error)
    if code in LOCKED:
        return ReportError(f"`{path}` is locked by another program", busy_error(path).hint)
    if code == sqlite3.SQLITE_CANTOPEN and len(os.fsencode(path.absolute())) > 500:
        return ReportError(f"`{path}` has too long a path for SQLite", "move it, as a link does not help")
    if code in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_INTERRUPT,
    ):
        return damaged_error(path)
    return ReportError(
        f"`{path}` cannot be read: {str(error).splitlines()[0].rstrip('. ')}", damaged_error(path).hint
    )


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:  # a network folder may vanish at any time
        raise unreadable_error(path, error) from None


_guard = Lock()
_held: dict[tuple[int, int], tuple[int, bytes]] = {}  # readers and header, by device and number of the file


@contextmanager
def hold_file(path: Path) -> Iterator[None]:
    """Let no other thread open and close a file while SQLite reads it.

    By POSIX, to close any descriptor of a file ends all locks that the process has on it.
    """
    header, status = _read_header(path), _stat(path)
    key = (status.st_dev, status.st_ino)
    with _guard:
        _held[key] = (_held.get(key, (0, b""))[0] + 1, header)
    try:
        yield
    finally:
        with _guard:
            count, _ = _held.pop(key)
            if count > 1:
                _held[key] = (count - 1, header)


def _read_header(path: Path) -> bytes:
    check_regular(path)
    try:
        with _guard:
            status = path.stat()
            if (held := _held.get((status.st_dev, status.st_ino))) is not None:
                return held[1]
            with path.open("rb") as file:
                header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise missing_error(path) from None
    except IsADirectoryError:
        raise ReportError(f"`{path}` is a folder, not a SQLite database", _EXPORT_HINT) from None
    except OSError as error:
        raise unreadable_error(path, error) from None
    if not header:
        raise ReportError(f"`{path}` is empty", f"the export did not finish: {_EXPORT_HINT}")
    return header


def _explain_foreign(path: Path, header: bytes) -> ReportError:
    for magic, (kind, hint) in _OTHER_KINDS.items():
        if header.startswith(magic):
            return ReportError(f"`{path}` is not a SQLite database: it is {kind}", hint)
    # encrypted files have no readable header; text hardly ever has that many such bytes
    if len(header) == _HEADER_BYTES and sum(byte >= 128 for byte in header) > _HEADER_BYTES // 4:
        return ReportError(
            f"`{path}` is not a SQLite database, or an encrypted one", f"decrypt it, or {_EXPORT_HINT}"
        )
    return ReportError(f"`{path}` is not a SQLite database", _EXPORT_HINT)


def _is_hot(journal: Path) -> bool:
    """Return whether a rollback journal has changes: SQLite zeroes or empties it after a commit."""
    try:
        with journal.open("rb") as file:
            return any(file.read(1))
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# Of each connection to a file.
SETTINGS = (
    "PRAGMA trusted_schema = OFF",  # programs in a file are not run
    "PRAGMA cell_size_check = ON",  # damaged pages are found when they are read
    "PRAGMA ignore_check_constraints = ON",  # by checks of SQLite, which would run these programs
)
_LEAST_VALUE_BYTES = 1_000_000


def most_value_bytes(size: int) -> int:
    """Return the largest size of a value in a file of `size` bytes: only a program makes a larger one."""
    return min(max(size, _LEAST_VALUE_BYTES), 1_000_000_000)


STEPS = 10_000  # of SQLite's machine between two calls of a handler of progress
_STEPS_PER_BYTE, _MORE_STEPS = 40, 10_000_000  # a row takes 5 bytes and some 20 steps, and a check of it more


def count_calls(size: int) -> int:
    """Return how often a query on a file of `size` bytes may call its handler.

    A tree that has a page many times would not end.
    """
    return (_STEPS_PER_BYTE * size + _MORE_STEPS) // STEPS


def limit_steps(connection: sqlite3.Connection, path: Path) -> None:
    """Interrupt the next query after more steps than the file of a report can need."""
    calls = iter(range(count_calls(find_state(path)[0])))
    connection.set_progress_handler(lambda: next(calls, None) is None, STEPS)


def connect_plainly(path: Path) -> sqlite3.Connection:
    """Open a SQLite file for reading by Python's module; undecodable bytes of texts are replaced.

    Raises:
        ReportError: It is no complete SQLite file.
    """
    connection = sqlite3.connect(check_database(path), uri=True, timeout=0, check_same_thread=False)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most_value_bytes(find_state(path)[0]))
    for setting in SETTINGS:
        connection.execute(setting)
    limit_steps(connection, path)
    try:
        for (name,) in connection.execute(HIDING):
            raise explain_sqlite(path, hiding_error(name))
    except sqlite3.OperationalError as error:
        if result_code(error) == sqlite3.SQLITE_INTERRUPT:
            raise explain_sqlite(path, error) from None
        raise
    connection.set_progress_handler(None, 0)
    return connection


_MOST_COMPLAINTS = 1_000
# Of other tables, SQLite's check would compute columns. Views, which need not work, are not asked for theirs.
_IS_PLAIN_TABLE = f"CASE WHEN {STORED} THEN (SELECT max(hidden) < 2 FROM pragma_table_xinfo(t.name)) END"
# What SQLite's check would run programs of the file for, which may need much memory, and not end.
FIND_PROGRAMS = f"""
    SELECT CAST(coalesce(nullif(t.name, ''), '?') AS TEXT) FROM sqlite_master AS t WHERE NOT coalesce(
        {_IS_PLAIN_TABLE}
        OR t.type = 'index' AND t.sql IS NULL
        OR t.type = 'index' AND (t.sql LIKE 'CREATE INDEX %' OR t.sql LIKE 'CREATE UNIQUE INDEX %')
            AND (SELECT NOT partial FROM pragma_index_list(t.tbl_name) AS i WHERE i.name = t.name)
            AND (SELECT min(cid) > -2 FROM pragma_index_xinfo(t.name))
        OR t.type IN ('view', 'trigger') AND t.sql LIKE 'CREATE ' || t.type || ' %', 0)
"""


class Integrity(Struct, frozen=True, kw_only=True):
    """Result of SQLite's check."""

    complaints: tuple[str, ...]  # () where the file is intact
    stopped: str  # why the check was not completed, in words; "" where it was


def check_integrity(path: Path, *, time_limit_s: float) -> Integrity:
    """Check a file with SQLite's `integrity_check`; beside programs, only each table without any.

    Args:
        path: A SQLite file.
        time_limit_s: After this time the check ends, and has found what it has found.

    Raises:
        ReportError: It cannot be opened.
    """
    complaints: list[str] = []
    stopped = ""
    try:
        with closing(connect_plainly(path)) as connection:
            connection.set_progress_handler(lambda: 0, STEPS)  # that looks at the interrupt
            programs = [name for (name,) in connection.execute(FIND_PROGRAMS)]
            checks = [f"integrity_check({_MOST_COMPLAINTS})"]
            if programs:
                tables = connection.execute(f"SELECT t.name FROM sqlite_master AS t WHERE {_IS_PLAIN_TABLE}")
                names = [name for (name,) in tables]
                numbers = [name for name in names if name[:1] in "+-0123456789"]  # for `quick_check`
                words = "programs of the file" + ", or named like numbers" * bool(numbers)
                stopped = f"short of {', '.join(programs + numbers)} ({words})"
                checks = [f"quick_check({quote_name(name)})" for name in names if name not in numbers]
            timer = Timer(min(time_limit_s, TIMEOUT_MAX), connection.interrupt)
            timer.daemon = True
            timer.start()
            try:
                for check in checks:
                    for (text,) in connection.execute(f"PRAGMA {check}"):
                        complaints += [line for line in text.splitlines() if not line.startswith("***")]
            finally:
                timer.cancel()
    except (sqlite3.Error, UnicodeError) as error:  # its messages need not be UTF-8
        code = result_code(error)
        if isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN):
            raise explain_sqlite(path, error) from None
        if code == sqlite3.SQLITE_INTERRUPT:
            stopped = f"after {time_limit_s:g} s, which `--time-limit` extends"
        else:
            stopped = "at its first complaint"
            complaints.append("the catalog is not text" if isinstance(error, UnicodeError) else str(error))
    return Integrity(complaints=tuple(line for line in complaints if line != "ok"), stopped=stopped)
