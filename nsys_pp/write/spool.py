"""Stores of encoded blocks between the encoding of reports and the writing of the trace."""

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

_MOST_IN_MEMORY = 1 << 26  # bytes; more blocks move to a file
_MOST_OF_NAME = 50
_TRIES = 10

OpenBlocks = Callable[[], AbstractContextManager[Source]]


class Store(Protocol):
    """Keep the blocks of reports."""

    def add(self) -> AbstractContextManager[tuple[Sink, OpenBlocks]]:
        """Add the blocks of one more report; return a sink for them, and a function that opens them once complete.

        An exception in the `with` block drops them.

        Raises:
            OutputError: On writing, if the system refuses.
        """


class Spool:
    """Keep the blocks of reports one after the other, in memory up to 64 MiB.

    More blocks are in an unnamed file in the folder of the output, which needs the space anyway;
    the system deletes it when the spool is closed or the process ends, even if it is killed.

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
        """Add the blocks of one more report, as in `Store`; one report at a time."""
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
        """Open the blocks from `start` on; not while a block is written."""
        self._file.seek(start)
        yield self._file


@dataclass(frozen=True, slots=True)
class Shelf:
    """Keep the blocks of each report in a file, in a folder of `make_scratch`; may be pickled for other processes."""

    folder: Path

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Add the blocks of one more report, as in `Store`; several reports at a time."""
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
    """Create a folder next to an output for files of other processes; delete it at the end.

    Raises:
        OutputError: The system refuses.
    """
    with translate_errors(output):
        folder = _folder_of(output)
        scratch = Path(tempfile.mkdtemp(dir=folder, prefix=f".{output.name[:_MOST_OF_NAME]}.")).absolute()
    try:
        yield scratch
    finally:
        for _ in range(_TRIES):  # a worker may still be writing
            shutil.rmtree(scratch, ignore_errors=True)
            if not scratch.exists():
                break


def _open(name: str) -> IO[bytes]:
    return open(name, "rb")


def _folder_of(output: Path) -> str | None:
    """Return the folder of an output; None for a device or pipe such as /dev/stdout."""
    real = Path(os.path.realpath(output))
    return str(real.parent) if output.is_file() or not output.exists() else None
