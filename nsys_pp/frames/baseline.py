"""A baseline: the sums of a good run, kept under a name for later comparisons.

It has no events, paths or environment.

The content of a baseline is a zip of `FACTS_MEMBER` (`BaselineRecord` in JSON) and `FRAMES_MEMBER` (the
samples, each compressed). A folder keeps it as `NAME@NUMBER.nsbaseline`, a SQLite file as a row of `TABLE`.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from nsys_pp.frames.aggregates import RunFacts, RunSums
from nsys_pp.frames.part import FRAMES_MEMBER as FRAMES_MEMBER

FORMAT = 1  # incremented when the content changes
SUFFIX = ".nsbaseline"
FACTS_MEMBER = "baseline.json"
TABLE = "nsys_pp_baselines"
TABLE_COLUMNS = ("name", "number", "content")
SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")
MOST_BYTES = 1 << 27  # of a content; some hundred kB are usual
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"
_FILE = re.compile(rf"(?P<name>{_NAME})@(?P<number>\d{{1,9}}){re.escape(SUFFIX)}")
_REFERENCE = re.compile(rf"(?P<name>{_NAME})(?:@(?P<number>\d{{1,9}}))?")


class BaselineRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The member `FACTS_MEMBER` of a content."""

    format: int
    tagged_at: str  # UTC, "2026-03-01T12:00:00Z"
    facts: RunFacts
    frame_bytes: dict[str, int]  # size of each frame of samples in `FRAMES_MEMBER`, in order


class Baseline(Struct, frozen=True, kw_only=True):
    """A baseline with its samples; `samples` of `sums` is empty where only the history is read."""

    name: str
    number: int  # 1, 2, ...: counts the runs that were tagged with the name
    tagged_at: str
    sums: RunSums


def split_reference(text: str) -> tuple[str, int | None] | None:
    """Return name and number of a baseline; a number of None is the newest one.

    None: the text is no reference.

    >>> split_reference("main"), split_reference("main@3"), split_reference("../main")
    (('main', None), ('main', 3), None)
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    return match["name"], None if match["number"] is None else int(match["number"])


def file_name(name: str, number: int) -> str:
    """Return the name of the file of a baseline.

    >>> file_name("main", 3)
    'main@3.nsbaseline'
    """
    return f"{name}@{number}{SUFFIX}"


def parse_file_name(text: str) -> tuple[str, int] | None:
    """Return name and number of a file; None for other files."""
    match = _FILE.fullmatch(text)
    return None if match is None else (match["name"], int(match["number"]))


def is_sqlite_store(store: Path) -> bool:
    """Return whether a store is a SQLite file, by its suffix; others are folders."""
    return store.suffix.lower() in SQLITE_SUFFIXES
