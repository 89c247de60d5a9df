"""Temporary stores of encoded blocks: reports are encoded into a store, and the trace is written from it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from msgspec import Struct

from nsys_pp.leftovers import make_temporary_folder
from nsys_pp.output.files import translate_errors
from nsys_pp.output.perfetto.trace import Sink, Source

_MAX_IN_MEMORY = 1 << 26  # bytes; above it, all blocks move to a file
_TRIES = 10

OpenBlocks = Callable[[], AbstractContextManager[Source]]


class Store(Protocol):
    """Store of the blocks of reports."""

    def add(self) -> AbstractContextManager[tuple[Sink, OpenBlocks]]:
        """Add the blocks of another report.

        A context of their sink, and of a function that opens them for reading.

        The function may be called after the `with` block. An exception in the `with` block drops the blocks.

        Raises:
            OutputError: A block cannot be written.
        """


class Spool:
    """Store in this process: blocks are in memory up to 64 MiB, above that in an unnamed file.

    The file is in the folder of the output, where the trace needs the space anyway. The system deletes it
    when the spool is closed or the process ends, even if the process is killed.

    Raises:
        OutputError: A block cannot be written.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._file = tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY, dir=_folder_of(output))  # noqa: SIM115
        self._end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Add the blocks of another report, as in `Store`; only one report may be open at a time."""
        start = self._end
        try:
            yield self, partial(self._open, start)
        except BaseException:
            self._end = start
            raise

    def write(self, data: bytes, /) -> None:
        """Add a block at the end."""
        with translate_errors(self._output):
            self._file.seek(self._end)
            self._file.write(data)
        self._end += len(data)

    @contextmanager
    def _open(self, start: int) -> Iterator[Source]:
        """Open the blocks from `start` on for reading; must not be called while a report is being added."""
        self._file.seek(start)
        yield self._file


class Shelf(Struct, frozen=True):
    """Store shared by processes: one file per report in a folder of `make_scratch`; a shelf can be pickled.

    Attributes:
        folder: The folder.
        output: Output that errors name.
    """

    folder: Path
    output: Path

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Add the blocks of another report, as in `Store`; several reports may be open at a time."""
        with translate_errors(self.output):
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".blocks")
        try:
            with translate_errors(self.output), os.fdopen(handle, "wb") as file:
                yield file, partial(_open, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


@contextmanager
def make_scratch(output: Path) -> Iterator[Path]:
    """Create a temporary folder next to an output, for files of worker processes; delete it at the end.

    Raises:
        OutputError: The folder cannot be created.
    """
    with translate_errors(output):
        folder = _folder_of(output) or tempfile.gettempdir()
        scratch = make_temporary_folder(Path(folder, output.name)).absolute()
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
