"""Temporary stores of encoded blocks: reports are encoded into a store, and the trace is written from it."""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import islice
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
        """Add the blocks of another report: a context of their sink, and of a function that opens them for reading.

        The function may be called after the `with` block. An exception in the `with` block drops the blocks.

        Raises:
            OutputError: A block cannot be written.
        """


class Spool:
    """Store in this process: blocks are in memory up to 64 MiB, above that in an unnamed file.

    The file is in the folder of the output, where the trace needs the space anyway. The system deletes it when the spool
    is closed or the process ends, even if the process is killed.

    Raises:
        OutputError: A block cannot be written.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._blocks: list[bytes] = []  # as they came: no copy of them
        self._ends: list[int] = []  # of the blocks in memory
        self._file: IO[bytes] | None = None
        self.end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks.clear()
        if self._file is not None:
            self._file.close()

    @contextmanager
    def add(self) -> Iterator[tuple[Sink, OpenBlocks]]:
        """Add the blocks of another report, as in `Store`; only one report may be open at a time."""
        start, count = self.end, len(self._blocks)
        try:
            yield self, partial(self.open, start)
        except BaseException:
            self.end = start
            del self._blocks[count:], self._ends[count:]
            raise

    def write(self, data: bytes, /) -> None:
        """Add a block at the end."""
        if self._file is None and self.end + len(data) <= _MAX_IN_MEMORY:
            self._blocks.append(data)
            self._ends.append(self.end + len(data))
        else:
            with translate_errors(self._output):
                file = self._file or self._leave_memory()
                file.seek(self.end)
                file.write(data)
        self.end += len(data)

    def _leave_memory(self) -> IO[bytes]:
        """Move all blocks to a file."""
        self._file = tempfile.TemporaryFile(dir=_folder_of(self._output))  # noqa: SIM115
        self._file.writelines(self._blocks)
        self._blocks.clear()
        self._ends.clear()
        return self._file

    @contextmanager
    def open(self, start: int) -> Iterator[Source]:
        """Open the blocks from `start` on for reading; must not be called while a report is being added."""
        if self._file is None:
            yield _BlockReader(islice(self._blocks, bisect_right(self._ends, start), None))
        else:
            self._file.seek(start)
            yield self._file


class _BlockReader:
    """Reader of blocks in memory.

    Args:
        blocks: The blocks.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, as in `Source`: a block without a copy, or the rest of one."""
        if not self._rest:
            block = next(self._blocks, b"")
            if len(block) <= size:
                return block
            self._rest = memoryview(block)
        data, self._rest = self._rest[:size], self._rest[size:]
        return bytes(data)


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
