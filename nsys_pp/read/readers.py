"""Registry of the kinds of input that are read as reports, and the search for those that a user names.

To add a kind, write its function in a module of this package and add one entry to `READERS`. The function
fills raw frames under our own names.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.names import natural_key
from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import ReportError, missing_error
from nsys_pp.frames.part import FORMAT
from nsys_pp.frames.part import SUFFIX as PART_SUFFIX
from nsys_pp.frames.raw import Group, RawReport
from nsys_pp.read.arrow import has_session, is_table_directory, list_table_files, read_table_directory
from nsys_pp.read.export import UNEXPORTED_SUFFIXES, export_report, is_unexported
from nsys_pp.read.files import check_database, unreadable_error
from nsys_pp.read.parts import is_part, read_part
from nsys_pp.registry import import_on_call
from nsys_pp.units import format_count

# with its driver, which parts need not
_read_sqlite: Callable[..., RawReport] = import_on_call("nsys_pp.read.sqlite:read_sqlite")
_check_sqlite: Callable[[Path], None] = import_on_call("nsys_pp.read.sqlite:check_sqlite")


class Reader(Struct, frozen=True, kw_only=True):
    """A kind of input that is read as a report.

    Attributes:
        suffixes: Suffixes of its files, by which they are found in folders; () for folders.
        accepts: Returns whether a path is of this kind.
        read: Reads the groups `need` of the report, exported by `nsys`; raises a `ReportError` if that fails.
        inspect: Raises a `ReportError` if the path is not a report, as far as a quick look tells.
        check: Raises a `ReportError` if the file shows that it is incomplete.
        has_end: Files that pass the check are complete; others are watched until they stop changing.
    """

    suffixes: tuple[str, ...]
    accepts: Callable[[Path], bool]
    read: Callable[[Path, frozenset[Group], str | Path | None], RawReport]
    inspect: Callable[[Path], object]
    check: Callable[[Path], object] = lambda path: None
    has_end: bool = False


def _check_recording(path: Path) -> None:
    if path.is_file() and not path.stat().st_size:
        raise ReportError(f"`{path}` is empty", "the recording did not finish: profile again")


# All kinds of input. The first one that accepts a path reads it, and files of unknown suffixes are SQLite.
READERS: tuple[Reader, ...] = (
    Reader(
        suffixes=UNEXPORTED_SUFFIXES,
        accepts=is_unexported,
        read=lambda path, need, nsys: replace(
            _read_sqlite(export_report(path, nsys=nsys), need=need), path=path
        ),
        inspect=_check_recording,  # it is exported where it is read
        check=_check_recording,
    ),
    Reader(
        suffixes=(),
        accepts=is_table_directory,
        read=lambda path, need, nsys: read_table_directory(path, need=need),
        inspect=list_table_files,  # the look into it takes a process
    ),
    Reader(
        suffixes=(".sqlite",),
        accepts=lambda path: True,
        read=lambda path, need, nsys: _read_sqlite(path, need=need),
        inspect=_check_sqlite,
        check=check_database,
        has_end=True,
    ),
)

# Suffixes of reports that are files.
REPORT_SUFFIXES = tuple(dict.fromkeys(suffix for reader in reversed(READERS) for suffix in reader.suffixes))
_SUFFIXES = (*REPORT_SUFFIXES, PART_SUFFIX)


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


_Unreadable: TypeAlias = dict[str, ReportError]  # by the folder
# Host, process, counter, variable; adjacent stars are included, since two of them would match folders.
_NSYS_PATTERN = re.compile(r"\**(?:%(?:[hpn]|q\{\w+\})\**)+")


def find_reports(
    inputs: Iterable[str | Path],
    *,
    with_parts: bool = False,
    absent: dict[str, ReportError] | None = None,
) -> list[Path]:
    """List the reports that `inputs` name, in that order; inside folders and patterns in natural order.

    A folder is searched with all folders below it; an export by `nsys export --type parquetdir` or
    `arrowdir` is one report. Patterns that the shell did not expand are expanded here, and so are the
    patterns of `nsys profile -o` (`%h`, `%p`, `%n`, `%q{VARIABLE}`, with or without a suffix), each of which
    matches any text. Of a `.nsys-rep` and its exports in the same folder only one is listed: an export that
    is not older, SQLite before a folder of tables, else the `.nsys-rep`, to be exported again. Parts inside
    folders are listed only `with_parts`, then instead of the report in the same folder, unless they are
    older. A link to a report of its folder, or to another report of the same input, is this report, listed
    once by its own name. A link to no file is listed: to read it is the error. Suffixes are read in any case.

    Args:
        inputs: Files, folders, patterns.
        with_parts: Also list parts.
        absent: Receives the error of each input that matches no file (yet), by the input, and of each folder
            inside an input that may not be read, by its path, instead of raising it.

    Raises:
        ReportError: An input does not exist, a folder or pattern has no report, a folder may not be read, or
            a report is named twice.
    """
    found: dict[Path, tuple[Path, str]] = {}  # by the resolved file
    suffixes = _SUFFIXES if with_parts else REPORT_SUFFIXES
    for named in inputs:
        refused: _Unreadable = {}
        try:
            if not str(named):
                raise ReportError("the name of an input is empty", "a variable of the script may be empty")
            expanded = _expand(Path(named), suffixes, refused)
        except ReportError as error:
            expanded, refused = [], {str(named): error}
        for folder, refusal in refused.items():
            if absent is None:
                raise refusal
            absent.setdefault(folder if expanded else str(named), refusal)
        for report in expanded:
            real = _resolve(report)
            if real in found:
                first, first_named = found[real]
                # one name is a link to the other in its folder, as `latest` often is
                is_link = first.is_symlink() or report.is_symlink()
                is_linked = is_link and _resolve(first.parent) == _resolve(report.parent)
                if (first_named == str(named) and first != report) or is_linked:
                    if first.is_symlink() and not report.is_symlink():
                        found[real] = (report, str(named))
                    continue
                same = (
                    f"`{first}`"
                    if first == report
                    else f"`{first}` and `{report}` are the same report, which"
                )
                raise ReportError(
                    f"{same} was named twice: by `{first_named}` and by `{named}`", "name each report once"
                )
            found[real] = (report, str(named))
    return _drop_duplicates([report for report, _ in found.values()])


def order_of_path(path: Path) -> list[list[tuple[str, int]]]:
    """Return the sort key of a path: folder by folder, in natural order.

    >>> sorted(map(Path, ["node10/a", "node2/a", "node2.x"]), key=order_of_path)
    [PosixPath('node2/a'), PosixPath('node2.x'), PosixPath('node10/a')]
    """
    return [natural_key(name) for name in path.parts]


def _expand(named: Path, suffixes: tuple[str, ...], unreadable: _Unreadable) -> list[Path]:
    try:
        exists, is_folder = named.exists(), named.is_dir()
    except OSError as error:
        raise unreadable_error(named, error) from None
    if is_folder:
        return [named] if is_table_directory(named) else _search(named, suffixes, unreadable)
    if exists or named.is_symlink():
        return [named]
    if _NSYS_PATTERN.search(str(named)):
        # as in `nsys profile -o`, which appends the suffix itself
        pattern = _NSYS_PATTERN.sub("*", str(named))
        if named.suffix.lower() in suffixes:
            return _match(Path(pattern), suffixes, unreadable, named=named)
        found = [path for suffix in suffixes for path in _glob(Path(f"{pattern}{suffix}"), unreadable)]
        if not found:
            return _match(Path(pattern), suffixes, unreadable, named=named)
        return sorted(found, key=order_of_path)
    if _is_pattern(named):
        return _match(named, suffixes, unreadable)
    raise missing_error(named)


def _is_pattern(path: Path) -> bool:
    return any(character in str(path) for character in "*?[")


def _glob(pattern: Path, unreadable: _Unreadable) -> list[Path]:
    if not _is_pattern(pattern):
        return [pattern]
    for folder in _glob(pattern.parent, unreadable):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            unreadable[str(folder)] = unreadable_error(folder, PermissionError())
    root = Path(pattern.anchor or ".")
    relative = str(pattern.relative_to(pattern.anchor)) if pattern.anchor else str(pattern)
    try:
        return sorted(root.glob(relative), key=order_of_path)
    except ValueError as error:
        raise ReportError(
            f"invalid pattern `{pattern}`: {error}", "check the pattern and the folder"
        ) from None


def _match(
    pattern: Path, suffixes: tuple[str, ...], unreadable: _Unreadable, *, named: Path | None = None
) -> list[Path]:
    reports = [
        report
        for match in _glob(pattern, unreadable)
        for report in (
            _search(match, suffixes, unreadable)
            if match.is_dir() and not is_table_directory(match)
            else [match]
        )
    ]
    if not reports and not unreadable:
        raise ReportError(f"`{named or pattern}` matches no report", "check the pattern and the folder")
    return reports


def _search(folder: Path, suffixes: tuple[str, ...], unreadable: _Unreadable) -> list[Path]:
    """List the reports below a folder; none only if folders cannot be read."""
    found = _list_folder(folder, unreadable)
    reports = [path for path in found if PART_SUFFIX in suffixes or not is_part(path)]
    if not reports and not unreadable:
        if found:
            raise ReportError(
                f"`{folder}` holds no report, only parts",
                "`merge`, `align`, `pipeline`, `chart`, `compare` and `summary` accept parts, where no "
                "events of the reports are needed",
            )
        raise ReportError(
            f"`{folder}` holds no report",
            "reports end in .sqlite or .nsys-rep, or are folders written by `nsys export --type parquetdir`",
        )
    origins = {(report.parent, name_origin(report)) for report in reports}
    if left_out := sum((path.parent, name_origin(path)) not in origins for path in found):
        count = format_count(left_out, "part")
        warnings.warn(f"`{folder}`: {count} left out, as only reports have what is asked", stacklevel=3)
    return reports


def _list_folder(folder: Path, unreadable: _Unreadable) -> list[Path]:
    """List the reports and parts below a folder.

    A folder that cannot be read is noted in `unreadable`.
    """
    reports: list[Path] = []
    try:
        for entry in sorted(folder.iterdir(), key=order_of_path):
            if entry.is_dir():
                # links to folders are not followed: they may form a cycle
                if is_table_directory(entry):
                    reports.append(entry)
                elif not entry.is_symlink() and not entry.name.startswith("."):
                    inner = _list_folder(entry, unreadable)
                    if not inner and str(entry) not in unreadable and entry.suffix.lower() in _SUFFIXES:
                        warnings.warn(
                            f"`{entry}` is a folder without reports, named like a report: left out",
                            stacklevel=3,
                        )
                    reports.extend(inner)
            elif entry.suffix.lower() in _SUFFIXES:
                reports.append(entry)
    except OSError as error:
        unreadable[str(folder)] = unreadable_error(error.filename or folder, error)
        return []
    return reports


def _drop_duplicates(reports: list[Path]) -> list[Path]:
    """Keep one of each `.nsys-rep` and its exports in the same folder."""
    by_origin = group_pairs(((report.parent, name_origin(report)), report) for report in reports)
    kept: set[Path] = set()
    unread: list[str] = []  # but for recordings and their exports
    for same in by_origin.values():
        first, *others = _choose(same)
        kept |= {first, *others}
        is_recorded = any(map(is_unexported, same))
        dropped = [path for path in same if path not in kept and (is_part(path) or not is_recorded)]
        unread += [f"`{first}` is read instead of `{path}`, which has the same name" for path in dropped]
    if unread:
        more = f", and so are {len(unread) - 1:,} more" if len(unread) > 1 else ""
        warnings.warn(f"{unread[0]}{more}", stacklevel=3)
    return [report for report in reports if report in kept]


def name_origin(report: Path) -> str:
    """Return the name that an export shares with its `.nsys-rep`; nsys recipes append `_pqtdir`."""
    if report.suffix.lower() in _SUFFIXES:
        return report.name[: -len(report.suffix)]
    return re.sub(r"_(pqtdir|arwdir|parquetdir|arrowdir)$", "", report.name)


def _choose(same: list[Path]) -> list[Path]:
    reports = [path for path in same if not is_part(path)]
    if not reports:
        return same
    recorded = [path for path in reports if is_unexported(path)]
    exports = [path for path in reports if not is_unexported(path)]
    if recorded:
        reported_ns = max(map(_changed_ns, recorded))
        exports = [
            path
            for path in exports
            if _changed_ns(path) >= reported_ns and (path.is_file() or has_session(path))
        ] or recorded
    exports.sort(key=lambda path: (path.is_dir(), path.name))
    # names that differ in the case of their suffixes alone are of two files
    return [path for path in exports if path.name.lower() == exports[0].name.lower()]


def _changed_ns(path: Path) -> int:
    """Return the time of the last change.

    Before all others where there is no file, as at the end of a broken link.
    """
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1


def _resolve(path: Path) -> Path:
    """Resolve links; one that leads nowhere is a file of its own."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return path.absolute()
