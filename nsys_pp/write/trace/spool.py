"""Encoded reports on their way into a trace."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from nsys_pp.write.files import translate_errors
from nsys_pp.write.perfetto.trace import Sink, Source

_MOST_IN_MEMORY = 1 << 26  # bytes; what is more lies in a file
_MOST_OF_NAME = 50
_TRIES = 10

OpenBlocks = Callable[[], AbstractContextManager[Source]]


class Store(Protocol):
    """Keeps blocks of reports."""

    def add(self) -> AbstractContextManager[tuple[Sink, OpenBlocks]]:
        """Take one more report's blocks; gives where to write them, and what opens them when all are there.

        Whatever ends the block early lets them be forgotten.

        Raises:
            OutputError: On writing, if the system refuses.
        """


class Spool:
    """Keeps blocks of reports, one report behind the other: in memory while they are few.

    More lie in a file without a name in the folder of the output, where there must be room for them
    anyway; it is gone when the spool is closed or the process ends, however it ends.

    Raises:
        OutputError: On writing, if the system refuses.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._file = tempfile.SpooledTemporaryFile(max_size=_MOST_IN_MEMORY, dir=_folder_of(output))  # noqa: SIM115
        self.end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Take one more report's blocks, as `Store` says; one report at a time."""
        start = self.end
        try:
            yield self, partial(self.open, start)
        except BaseException:
            self.end = start
            raise

    def write(self, data: bytes, /) -> None:
        """Add a block at the end."""
        with translate_errors(self._output):
            self._file.seek(self.end)
            self._file.write(data)
        self.end += len(data)

    @contextmanager
    def open(self, start: int) -> Iterator[IO[bytes]]:
        """Read from `start` on, while nothing is written."""
        self._file.seek(start)
        yield self._file


@dataclass(frozen=True, slots=True)
class Shelf:
    """Keeps blocks of reports, a file each, in a folder that `make_scratch` made; may be sent to other processes."""

    folder: Path

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Take one more report's blocks, as `Store` says; several at a time."""
        with translate_errors(self.folder):
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".blocks")
        try:
            with translate_errors(self.folder), os.fdopen(handle, "wb") as file:
                yield file, partial(_open, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


@contextmanager
def make_scratch(output: Path) -> Iterator[Path]:
    """Make a folder beside an output for what other processes make of it; take it away in the end.

    Raises:
        OutputError: The system refuses.
    """
    with translate_errors(output):
        folder = _folder_of(output)
        scratch = Path(tempfile.mkdtemp(dir=folder, prefix=f".{output.name[:_MOST_OF_NAME]}.")).absolute()
    try:
        yield scratch
    finally:
        for _ in range(_TRIES):  # somebody may still be writing who does not know that it is over
            shutil.rmtree(scratch, ignore_errors=True)
            if not scratch.exists():
                break


def _open(name: str) -> IO[bytes]:
    return open(name, "rb")


def _folder_of(output: Path) -> str | None:
    """Give the folder of an output; what is written to directly, like /dev/stdout, lies where no file can be."""
    real = Path(os.path.realpath(output))
    return str(real.parent) if output.is_file() or not output.exists() else None
