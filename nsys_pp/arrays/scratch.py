"""Large columns in an unnamed file instead of memory.

The frames of a report are read stage by stage, each column once or twice. In a mapped file their pages are memory only
while they are read: `drop_pages` drops them, and the system reads them again from its cache, or from the disk where
memory is short. A page that is read again costs a tenth of a page that is written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

_LARGE_BYTES = 1 << 20  # a column of fewer stays in memory
_MOST_BYTES = 192 << 20  # of pages in memory, beyond which all are dropped
_WATCH_S = 0.05  # reading the size of this process takes 20 microseconds
_HAS_PAGES = hasattr(mmap, "MADV_DONTNEED")  # not on Windows


class _Scratch:
    """Files of one report.

    Args:
        folder: For the files; None: the folder of temporary files.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._is_closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._pages: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by address

    def open(self) -> IO[bytes]:
        """Open a file without a name: the system deletes it with its last user, however this process ends."""
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def map(self, file: IO[bytes], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Map the first values of a file; the array cannot be written."""
        pages = mmap.mmap(file.fileno(), count * dtype.itemsize, access=mmap.ACCESS_READ)
        values = np.frombuffer(pages, dtype=dtype)
        self._pages[values.ctypes.data] = pages
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(_count_mapped(),), daemon=True)
            self._watcher.start()
        return values

    def has(self, values: NDArray[Any]) -> bool:
        return values.ctypes.data in self._pages

    def drop_pages(self) -> None:
        for pages in list(self._pages.values()):
            pages.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        self._is_closed.set()

    def _watch(self, base: int) -> None:
        """Drop the pages while stages read them; `base` are the mapped bytes of this process without them."""
        while base and not self._is_closed.wait(_WATCH_S):
            if _count_mapped() - base > _MOST_BYTES:
                self.drop_pages()


_scratch: ContextVar[_Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def open_scratch(folder: Path | None) -> Iterator[None]:
    """Have large columns in files inside the context, in this thread; they stay valid after it.

    Args:
        folder: On a disk with space for them; None: the folder of temporary files.
    """
    scratch = _Scratch(folder) if _HAS_PAGES else None
    token = _scratch.set(scratch)
    try:
        yield
    finally:
        _scratch.reset(token)
        if scratch is not None:
            scratch.close()


def share_scratch() -> Callable[[], None]:
    """Return a function that has another thread use the scratch of this one."""
    scratch = _scratch.get()
    return lambda: _scratch.set(scratch) and None


def drop_pages() -> None:
    """Drop the pages of columns in files from memory; those that are used again are read again."""
    if (scratch := _scratch.get()) is not None:
        scratch.drop_pages()


class GrowingColumn:
    """Values of a column that come block by block.

    In a scratch, they are written to a file as they come; else, or where the disk is full, they are in memory.

    Args:
        most: Number of values that are expected at most; more are added more slowly.
        dtype: Of the values.
    """

    def __init__(self, most: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._values: NDArray[Any] | None = None
        self._file: IO[bytes] | None = None
        self._scratch = _scratch.get()
        if self._scratch is not None and most * dtype.itemsize >= _LARGE_BYTES:
            self._file = _open(self._scratch)
        if self._file is None:
            self._values = np.empty(most, dtype=dtype)

    def put(self, first: int, values: NDArray[Any]) -> None:
        """Set values from a position on; positions that are never set are zero, or anything in memory."""
        if self._file is not None and not _write(self._file, values, first):
            self._leave_file(first)
        if self._values is not None:
            if first + len(values) > len(self._values):
                self._values = np.resize(self._values, 2 * (first + len(values)))
            self._values[first : first + len(values)] = values

    def build(self, count: int) -> NDArray[Any]:
        """Return the values, once; an array in a file cannot be written."""
        values, file = self._values, self._file
        self._values = self._file = None
        if values is not None:
            return values[:count] if count <= len(values) else np.resize(values, count)
        assert file is not None
        assert self._scratch is not None
        with file:
            file.truncate(count * self._dtype.itemsize)
            return self._scratch.map(file, count, self._dtype)

    def _leave_file(self, count: int) -> None:
        """Read the values from the file, which has no space for more."""
        assert self._file is not None
        self._values = np.zeros(2 * count, dtype=self._dtype)
        self._file.seek(0)
        kept = np.fromfile(self._file, dtype=self._dtype, count=count)
        self._values[: len(kept)] = kept
        self._file.close()
        self._file = None


def move_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array with these values in a scratch; the same array if it is small, or without a scratch."""
    scratch = _scratch.get()
    if (
        scratch is None
        or values.nbytes < _LARGE_BYTES
        or scratch.has(values)
        or (file := _open(scratch)) is None
    ):
        return values
    with file:
        values = np.ascontiguousarray(values)
        return scratch.map(file, len(values), values.dtype) if _write(file, values, 0) else values


def move_columns(frame: pl.DataFrame, names: list[str] | None = None) -> pl.DataFrame:
    """Return a frame whose large columns of numbers without null are in a scratch; the same frame without one.

    Args:
        frame: The frame.
        names: Of columns that may be moved; None: all. Those that share the memory of others should not.
    """
    if _scratch.get() is None:
        return frame
    moved = frame.clone()
    for position, column in enumerate(frame.iter_columns()):
        is_chosen = names is None or column.name in names
        if not is_chosen or not column.dtype.is_numeric() or column.null_count():
            continue
        values = column.to_numpy()
        if (kept := move_array(values)) is not values:
            moved.replace_column(position, pl.Series(column.name, kept))
    return moved


def _count_mapped() -> int:
    """Return the bytes of mapped files that are in the memory of this process; 0 where the system does not count them."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return 0


def _open(scratch: _Scratch) -> IO[bytes] | None:
    try:
        return scratch.open()
    except OSError:
        return None


def _write(file: IO[bytes], values: NDArray[Any], first: int) -> bool:
    """Write values from a position on; False if the disk has no space."""
    data = memoryview(np.ascontiguousarray(values)).cast("B")
    at = first * values.itemsize
    try:
        while data:
            written = os.pwrite(file.fileno(), data, at)
            data, at = data[written:], at + written
    except OSError:
        return False
    return True
