"""Completeness of a report: is it still being recorded, exported or copied?"""

from __future__ import annotations

from pathlib import Path

from nsys_pp.errors import ReportError
from nsys_pp.frames.part import FORMAT
from nsys_pp.read.part_groups import find_stored, is_part
from nsys_pp.read.parts import read_part
from nsys_pp.read.readers import find_reader
from nsys_pp.read.unreadable import unreadable_error

Stamp = tuple[tuple[str, int, int], ...]


def find_lack(path: Path) -> ReportError | None:
    """Return the error of an incomplete report, as far as its files show it.

    A part has its list of contents at its end; a database has its size in its header, and a journal while it is
    written. Reports without such an end (`has_end`) are complete when their stamp stops changing.

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
    """Return the values that change while a report is written: names, sizes and times; empty if it does not exist."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [find_stored(path)]
        states = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
