"""Errors that a user can fix: one sentence and a hint each.

Raise at the point of knowledge, catch once (`nsys_pp.cli`). Messages are literals in
backticks, without a full stop; the hint names the next step.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sqlite3
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

# What a number of the system means for an output, and the next step.
_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space, or write elsewhere"),
    errno.EDQUOT: ("your disk quota is used up", "free some space, or write elsewhere"),
    errno.EIO: ("the disk cannot be written, or a file would be too large", "write elsewhere"),
    errno.EFBIG: ("the file would be larger than this system allows", "write elsewhere"),
    errno.EACCES: ("permission denied", "write elsewhere"),
    errno.EPERM: ("permission denied", "write elsewhere"),
    errno.EROFS: ("the file system is read-only", "write elsewhere"),
    errno.ENOENT: ("its folder does not exist, or that of the file it links to", "make the folder first"),
    errno.ENOTDIR: ("its folder is a file", "write elsewhere"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.EEXIST: ("it exists, and is no folder", "choose another name"),
    errno.EISDIR: ("it is a folder", "name a file with `-o`"),
}

# Signals that end a command; Windows lacks some.
ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

REPORT_IT = "this is a defect of nsys-pp: please report it with the traceback that `--debug` shows"
_MOST_CHARACTERS = 200  # of the text of an unforeseen error


class NsysPPError(Exception):
    """Base of every error that the user can fix.

    Args:
        message: One sentence that names the file and the problem.
        hint: Next step for the user, or None.
    """

    details = ""  # traceback of an unforeseen error, for `--debug`

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = escape_bytes(message)
        self.hint = hint if hint is None else escape_bytes(hint)


class ReportError(NsysPPError):
    """A report that cannot be opened or understood: no such file, not SQLite, truncated, locked."""


class MissingDataError(ReportError):
    """A report without the tables that a command needs; the hint names the option that records them."""


class NsysNotFoundError(NsysPPError):
    """A `.nsys-rep` that no `nsys` is there to export."""


class OutputError(NsysPPError):
    """An output that cannot be written: it exists, no permission, disk full."""


class ClockError(NsysPPError):
    """Clock options that the reports contradict: an unknown machine, an impossible offset."""


class UnforeseenError(NsysPPError):
    """An unexpected error while one report is processed: a defect of nsys-pp or of a library.

    Args:
        message: One sentence that names the report and the error.
        hint: Next step for the user.
        details: Traceback of the error, for `--debug`.
    """

    def __init__(self, message: str, hint: str | None = None, details: str = "") -> None:
        super().__init__(message, hint)
        self.details = details


class OptionError(NsysPPError, ValueError):
    """An option with an invalid value.

    Args:
        option: Keyword of the library, as in `steps`.
        message: One sentence: the value, and the expected form.
        hint: Next step for the user, or None.
    """

    def __init__(self, option: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.option = option

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str, str | None]]:
        """Return the arguments, so that the error can be sent between processes."""
        return OptionError, (self.option, self.message, self.hint)


def describe_unforeseen(error: BaseException) -> str:
    """Describe an unforeseen error by its type and the first line of its text."""
    line = next(iter(str(error).strip().splitlines()), "")
    text = line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def escape_bytes(text: str) -> str:
    r"""Escape bytes that are no UTF-8, as names of files may have, so that all outputs can hold the text.

    >>> escape_bytes("caf\udce9.sqlite")
    'caf\\xe9.sqlite'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def explain_os_error(error: OSError) -> tuple[str, str]:
    """Return why an output cannot be written, and the next step."""
    return _REASONS.get(error.errno or 0, (error.strerror or str(error), "write elsewhere"))


def describe_path(path: Path | str) -> str:
    r"""Return a path as text; bytes that are no UTF-8 are escaped.

    >>> describe_path(Path("run/rank0.sqlite")), describe_path(Path("caf\udce9.sqlite"))
    ('run/rank0.sqlite', 'caf\\xe9.sqlite')
    """
    return escape_bytes(str(path))


def quote_argument(path: Path | str) -> str:
    r"""Return a path as a shell and `nsys-pp` take it in a command line.

    >>> quote_argument(Path("my run.pftrace")), quote_argument(Path("-x.pftrace"))
    ("'my run.pftrace'", './-x.pftrace')
    >>> print(quote_argument("it's\n"))
    $'it\x27s\x0a'
    """
    text = f"./{path}" if str(path).startswith("-") else str(path)
    if text.isprintable():
        return shlex.quote(text)
    plain = {*range(32, 127)} - {*b"'\\"}
    written = [chr(byte) if byte in plain else rf"\x{byte:02x}" for byte in os.fsencode(text)]
    return f"$'{''.join(written)}'"


def missing_error(path: Path) -> ReportError:
    """Build the error for a file that does not exist; the hint has the most similar name of its folder."""
    if path.is_symlink():
        return ReportError(f"`{path}` is a link to no file", "check where it leads")
    names: dict[str, str] = {}
    with suppress(OSError):  # the folder may be missing, too
        names = {name.lower(): name for name in os.listdir(path.parent) if name != path.name}
    near = get_close_matches(path.name.lower(), names, n=1)
    hint = f"did you mean `{path.with_name(names[near[0]])}`?" if near else "check the name and the folder"
    return ReportError(f"`{path}` does not exist", hint)


def result_code(error: Exception) -> int:
    """Return the result code of an error, without what extends it; that of any error for Python's own."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def disk_errno(error: sqlite3.Error, path: Path) -> int | None:
    """Return the system's number of an error of SQLite that the disk caused, which SQLite does not tell.

    None for other errors. `path`: the output, which SQLite does not open where its path has some 500 bytes.
    """
    gone = errno.ENAMETOOLONG if path.parent.is_dir() else errno.ENOENT
    numbers = {
        sqlite3.SQLITE_FULL: errno.ENOSPC,
        sqlite3.SQLITE_IOERR: errno.EIO,
        sqlite3.SQLITE_CANTOPEN: gone,
    }
    return numbers.get(result_code(error))
