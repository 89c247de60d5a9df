"""The small file that was read last, in memory for a second reading of other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

Stamp = tuple[int, int, bytes]
"""Size, time of the last change, and SQLite's counter of changes."""


class KeptFile(Protocol):
    """A file in memory; parts need no reader of reports, so this module imports none (`sqlite_small.py`)."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def stamp(self) -> Stamp:
        """Its state when it was read."""


class LastFile:
    """The file that was read last; None until one is read."""

    def __init__(self) -> None:
        self.kept: KeptFile | None = None

    def find(self, path: Path, stamp: Stamp) -> KeptFile | None:
        """Return the file; None if it is another one or has changed."""
        kept = self.kept
        return kept if kept is not None and (kept.path, kept.stamp) == (path, stamp) else None


_last: ContextVar[LastFile | None] = ContextVar("last", default=None)


@contextmanager
def keep_last_file() -> Iterator[None]:
    """Keep the last small file until the end of the context: it is read and checked once."""
    token = _last.set(LastFile())
    try:
        yield
    finally:
        _last.reset(token)


def find_last_file() -> LastFile | None:
    """Return the file of the context; None outside of one."""
    return _last.get()
