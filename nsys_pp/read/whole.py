"""Is a report whole, or still being recorded, exported or copied?"""

from __future__ import annotations

from pathlib import Path

from nsys_pp.errors import ReportError
from nsys_pp.frames.part import FORMAT
from nsys_pp.read.parts import is_part, read_part
from nsys_pp.read.readers import find_reader
from nsys_pp.read.unreadable import unreadable_error

Stamp = tuple[tuple[str, int, int], ...]


def find_lack(path: Path) -> ReportError | None:
    """Say what is not whole about a report, as far as one look tells.

    A part has its list of contents at its end, a database says in its first bytes how large it is and keeps
    a journal while it is written. Of other forms one look tells nothing: watch whether their stamp changes.

    Returns:
        What would be raised on reading it; None where nothing is known to be missing.
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


def tells_its_end(path: Path) -> bool:
    """Whether one look tells that a report is whole."""
    return find_reader(path).has_end


def take_stamp(path: Path) -> Stamp:
    """Take what changes while a report is written: names, sizes and times; empty where it is gone."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        states = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
