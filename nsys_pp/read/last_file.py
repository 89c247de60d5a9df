"""The small file that was read last, in memory for a second reading of other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

Stamp = tuple[int, int, bytes]
"""Size, time of the last change, and SQLite's counter of changes."""


class LastFile:
    """A small file (`SmallFile`), and its form after all checks (`SoundFile`); None until it is read.

    Their module, `sqlite_small.py`, imports this one, and parts need no reader of reports.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.stamp: Stamp | None = None
        self.small: Any = None
        self.sound: Any = None

    def find(self, path: Path, stamp: Stamp) -> Any:
        """Return the file; None if it is another one or has changed."""
        return self.small if (self.path, self.stamp) == (path, stamp) else None

    def keep(self, path: Path, stamp: Stamp, small: Any) -> None:
        """Keep a file instead of the last one."""
        self.path, self.stamp, self.small, self.sound = path, stamp, small, None


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
