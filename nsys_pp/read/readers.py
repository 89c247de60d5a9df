"""Registry of the kinds of input that are read as reports.

To add a kind, write its function in a module of this package and add one entry to `READERS`. The function
fills raw frames under our own names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import ReportError
from nsys_pp.frames.part import FORMAT
from nsys_pp.frames.raw import ALL_GROUPS, Group, RawReport
from nsys_pp.read.arrow import is_table_directory, read_table_directory
from nsys_pp.read.export import UNEXPORTED_SUFFIXES, export_report, is_unexported
from nsys_pp.read.files import check_database, unreadable_error
from nsys_pp.read.parts import is_part, read_part
from nsys_pp.registry import import_on_call

# with its driver, which parts need not
_read_sqlite: Callable[..., RawReport] = import_on_call("nsys_pp.read.sqlite:read_sqlite")
_check_sqlite: Callable[[Path], None] = import_on_call("nsys_pp.read.sqlite:check_sqlite")


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Options of reading a report.

    Attributes:
        need: Groups of tables and columns to read in addition to the session.
        nsys: Program that exports; found by `$NSYS_PP_NSYS` or on PATH if None.
    """

    need: frozenset[Group] = ALL_GROUPS
    nsys: str | Path | None = None


class Reader(Struct, frozen=True, kw_only=True):
    """A kind of input that is read as a report.

    Attributes:
        suffixes: Suffixes of its files, by which they are found in folders; () for folders.
        accepts: Returns whether a path is of this kind.
        read: Reads the report; raises a `ReportError` if that fails.
        inspect: Raises a `ReportError` if the path is not a report, as far as a quick look tells.
        check: Raises a `ReportError` if the file shows that it is incomplete.
        has_end: Files that pass the check are complete; others are watched until they stop changing.
    """

    suffixes: tuple[str, ...]
    accepts: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], RawReport]
    inspect: Callable[[Path], object]
    check: Callable[[Path], object] = lambda path: None
    has_end: bool = False


def _read_unexported(path: Path, options: ReadOptions) -> RawReport:
    export = export_report(path, nsys=options.nsys)
    return replace(_read_sqlite(export, need=options.need), path=path)


def _check_recording(path: Path) -> None:
    if path.is_file() and not path.stat().st_size:
        raise ReportError(f"`{path}` is empty", "the recording did not finish: profile again")


READERS: tuple[Reader, ...] = (
    Reader(
        suffixes=UNEXPORTED_SUFFIXES,
        accepts=is_unexported,
        read=_read_unexported,
        inspect=_check_recording,  # it is exported where it is read
        check=_check_recording,
    ),
    Reader(
        suffixes=(),
        accepts=is_table_directory,
        read=lambda path, options: read_table_directory(path, need=options.need),
        inspect=lambda path: read_table_directory(path, need=frozenset()),
    ),
    Reader(
        suffixes=(".sqlite",),
        accepts=lambda path: True,
        read=lambda path, options: _read_sqlite(path, need=options.need),
        inspect=_check_sqlite,
        check=check_database,
        has_end=True,
    ),
)
"""All kinds of input.

The first one that accepts a path reads it, and files of unknown suffixes are SQLite.
"""

REPORT_SUFFIXES = tuple(dict.fromkeys(suffix for reader in reversed(READERS) for suffix in reader.suffixes))
"""Suffixes of reports that are files."""


def find_reader(path: Path) -> Reader:
    """Return the first reader that accepts a path."""
    return next(reader for reader in READERS if reader.accepts(path))


Stamp = tuple[tuple[str, int, int], ...]


def find_lack(path: Path) -> ReportError | None:
    """Return the error of an incomplete report, as far as its files show it.

    A part has its list of contents at its end; a database has its size in its header, and a journal while it
    is written. Reports without such an end (`has_end`) are complete when their stamp stops changing.

    Returns:
        The error that reading would raise; None if it is complete or its files do not show it.
    """
    try:
        if is_part(path):
            read_part(path, (), version=f"of format {FORMAT}")
        else:
            find_reader(path).check(path)
    except ReportError as error:
        return error
    except OSError as error:
        return unreadable_error(path, error)
    return None


def has_end(path: Path) -> bool:
    """Return whether the files of a complete report show that it is complete."""
    return find_reader(path).has_end


def read_stamp(path: Path) -> Stamp:
    """Return the values that change while a report is written: names, sizes and times.

    Empty if it does not exist.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
