"""Encoded reports on their way into a trace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nsys_pp.write.files import translate_errors

_MOST_IN_MEMORY = 1 << 26  # bytes; what is more lies in a file


class Spool:
    """Keeps blocks of reports, one report behind the other: in memory while they are few.

    More lie in a file without a name in the folder of the output, where there must be room for them
    anyway; it is gone when the spool is closed or the process ends, however it ends.

    Raises:
        OutputError: On writing, if the system refuses.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        # what is written to directly, like /dev/stdout, lies where no file can be
        folder = str(output.parent) if output.is_file() or not output.exists() else None
        self._file = tempfile.SpooledTemporaryFile(max_size=_MOST_IN_MEMORY, dir=folder)  # noqa: SIM115
        self.end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes, /) -> None:
        """Add a block at the end."""
        with translate_errors(self._output):
            self._file.seek(self.end)
            self._file.write(data)
        self.end += len(data)

    def cut(self, end: int) -> None:
        """Forget what lies behind `end`."""
        self.end = end

    @contextmanager
    def open(self, start: int) -> Iterator[IO[bytes]]:
        """Read from `start` on, while nothing is written."""
        self._file.seek(start)
        yield self._file
