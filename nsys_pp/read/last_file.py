"""The small file that was read last, in memory for a second reading of other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # parts need no reader of reports
    from nsys_pp.read.sqlite_small import SmallFile, SoundFile

Stamp = tuple[int, int, bytes]
"""Size, time of the last change, and SQLite's counter of changes."""


class LastFile:
    """A small file (`sqlite_small.MOST_BYTES`), and its form after all checks; None until it is read."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.stamp: Stamp | None = None
        self.small: SmallFile | None = None
        self.sound: SoundFile | None = None

    def find(self, path: Path, stamp: Stamp) -> SmallFile | None:
        """Return the file, unless it is another one or has changed."""
        return self.small if (self.path, self.stamp) == (path, stamp) else None

    def keep(self, path: Path, stamp: Stamp, small: SmallFile | None) -> None:
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
