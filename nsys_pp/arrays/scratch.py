"""Large columns in files without a name instead of memory.

The frames of a report are read stage by stage, each column once or twice. In a mapped file their pages are memory only
while they are read: dropped pages are read again from the system's cache, or from the disk where memory is short. To
read 150 MB again takes some 10 ms of the processor.
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
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.paged import PagedMemory, drop_paged_arrays

_LARGE_BYTES = 1 << 20  # by default, a column of fewer stays in memory
_MOST_BYTES = 192 << 20  # of pages in memory, beyond which all are dropped
_WATCH_S = 0.05  # reading the size of this process takes 20 microseconds
_MOST_PAGED_BYTES = 128 << 20  # the same where working arrays are in files, too
_PAGED_WATCH_S = 0.01
_WIDEST_BYTES = 16  # of a number in a column
_PAGED_BYTES = 9 << 20  # of a working array in a file
_HAS_PAGES = hasattr(mmap, "MADV_DONTNEED") and hasattr(os, "pwrite")  # not on Windows


class _File:
    """File without a name: the system deletes it with its last user, however this process ends."""

    def __init__(self, folder: Path | None) -> None:
        self.handle = -1
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self.handle = os.dup(file.fileno())

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)

    def write(self, values: NDArray[Any], first: int) -> bool:
        """Write values from a position on; False if the disk has no space."""
        data = np.ascontiguousarray(values).view(np.uint8).data
        at = first * values.itemsize
        try:
            while data:
                written = os.pwrite(self.handle, data, at)
                data, at = data[written:], at + written
        except OSError:
            return False
        return True


_pages: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # of all scratches, by address


def _drop_all() -> None:
    """Drop the pages of all files from memory."""
    for pages in list(_pages.values()):
        pages.madvise(mmap.MADV_DONTNEED)
    drop_paged_arrays()


class _Scratch:
    """Files of one report.

    Args:
        folder: For the files; None: the folder of temporary files.
        least_bytes: Of a column in a file; smaller ones stay in memory.
    """

    def __init__(self, folder: Path | None, least_bytes: int) -> None:
        self._folder = folder
        self.least_bytes = least_bytes
        self._is_closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self.paged: PagedMemory | None = None
        self._end_paged: Callable[[], None] | None = None
        self.owned: list[object] = []

    def page_arrays(self, least_bytes: int) -> None:
        """Open paged memory, and use it in this thread; columns are in files as by default, too."""
        self.least_bytes = min(self.least_bytes, _LARGE_BYTES)
        if self.paged is None:
            self.paged = PagedMemory(self._folder or Path(tempfile.gettempdir()), least_bytes)
            self._end_paged = self.paged.use()
            self.start_watcher()

    def open(self) -> _File | None:
        """Open a file; None where that is impossible."""
        try:
            return _File(self._folder)
        except OSError:
            return None

    def map(self, file: _File, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Map the first values of a file, at least one; the array cannot be written."""
        self.start_watcher()
        pages = mmap.mmap(file.handle, count * dtype.itemsize, access=mmap.ACCESS_READ)
        values = np.frombuffer(pages, dtype=dtype)
        _pages[values.ctypes.data] = pages
        return values

    def has(self, values: NDArray[Any]) -> bool:
        """Return whether an array is a mapped file, from its begin on."""
        return values.ctypes.data in _pages or (self.paged is not None and self.paged.has(values))

    def close(self) -> None:
        """Stop to drop pages; arrays stay valid."""
        self._is_closed.set()
        self.owned.clear()
        if self.paged is not None and self._end_paged is not None:
            self._end_paged()
            self.paged.close()

    def start_watcher(self) -> None:
        """Start to drop pages."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(_count_mapped(),), daemon=True)
            self._watcher.start()

    def _watch(self, base: int) -> None:
        """Drop the pages while stages read them; `base` are the mapped bytes of this process without them."""
        while base and not self._is_closed.wait(_WATCH_S if self.paged is None else _PAGED_WATCH_S):
            if _count_mapped() - base > (_MOST_BYTES if self.paged is None else _MOST_PAGED_BYTES):
                _drop_all()


_scratch: ContextVar[_Scratch | None] = ContextVar("scratch", default=None)


@contextmanager
def open_scratch(folder: Path | None, *, least_bytes: int | None = None) -> Iterator[None]:
    """Have large columns in files inside the context, in this thread; they stay valid after it.

    Args:
        folder: On a disk with space for them; None: the folder of temporary files.
        least_bytes: Of a column in a file; smaller ones stay in memory. Default: 1 MiB.
    """
    least_bytes = _LARGE_BYTES if least_bytes is None else least_bytes
    scratch = _Scratch(folder, least_bytes) if _HAS_PAGES else None
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

    def share() -> None:
        _scratch.set(scratch)
        if scratch is not None and scratch.paged is not None:
            scratch.paged.use()

    return share


def page_arrays(*, least_bytes: int | None = None) -> None:
    """Have numpy allocate large arrays in files, too, until the scratch is closed; in this thread and in threads that share it.

    Args:
        least_bytes: Of an array in a file; smaller ones are in memory. Default: 9 MiB.
    """
    if (scratch := _scratch.get()) is not None:
        scratch.page_arrays(_PAGED_BYTES if least_bytes is None else least_bytes)


def is_paged() -> bool:
    """Return whether numpy allocates large arrays in files."""
    scratch = _scratch.get()
    return scratch is not None and scratch.paged is not None and scratch.paged.is_open


def is_moved(values: NDArray[Any]) -> bool:
    """Return whether an array begins a file of the scratch."""
    scratch = _scratch.get()
    return scratch is not None and scratch.has(values)


def is_open() -> bool:
    """Return whether there is a scratch."""
    return _scratch.get() is not None


def keep_until_closed(owned: object) -> None:
    """Keep an object as long as the scratch is open, if there is one."""
    if (scratch := _scratch.get()) is not None:
        scratch.owned.append(owned)


def drop_pages() -> None:
    """Drop the pages of columns in files from memory; later use reads them again."""
    if _scratch.get() is not None:
        _drop_all()


@contextmanager
def limit_pages() -> Iterator[None]:
    """Keep few pages of columns in memory inside the context, also of closed scratches: for frames that are read once more."""
    if not _pages:
        yield
        return
    _drop_all()
    scratch = _Scratch(None, _LARGE_BYTES)
    scratch.start_watcher()
    try:
        yield
    finally:
        scratch.close()


class GrowingColumn:
    """Values of a column that come block by block.

    In a scratch, they are written to a file as they come; else, or where the disk is full, they are in memory.

    Args:
        most: Number of values that are expected at most; more are added more slowly.
        dtype: Of the values.
    """

    def __init__(self, most: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._scratch = _scratch.get()
        self._file: _File | None = None
        if self._scratch is not None and most * dtype.itemsize >= self._scratch.least_bytes:
            self._file = self._scratch.open()
        self._values: NDArray[Any] | None = np.empty(most, dtype=dtype) if self._file is None else None

    def put(self, first: int, values: NDArray[Any]) -> None:
        """Set values from a position on; positions that are never set are zero in a file, and anything in memory."""
        if self._file is not None and not self._file.write(values, first):
            self._leave_file(first)
        if self._values is not None:
            if first + len(values) > len(self._values):
                self._values = np.resize(self._values, 2 * (first + len(values)))
            self._values[first : first + len(values)] = values

    def build(self, count: int) -> NDArray[Any]:
        """Return the first values, at least one; to be called once. An array in a file cannot be written."""
        values, file = self._values, self._file
        self._values = self._file = None
        if file is not None and self._scratch is not None:
            os.ftruncate(file.handle, count * self._dtype.itemsize)
            return self._scratch.map(file, count, self._dtype)
        assert values is not None
        return values[:count] if count <= len(values) else np.resize(values, count)

    def _leave_file(self, count: int) -> None:
        """Read the values from the file, which has no space for more."""
        assert self._file is not None
        assert self._scratch is not None
        self._values = np.zeros(2 * count, dtype=self._dtype)
        kept = min(count, os.fstat(self._file.handle).st_size // self._dtype.itemsize)
        if kept:
            self._values[:kept] = self._scratch.map(self._file, kept, self._dtype)
        self._file = None


def move_array(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array with these values in a scratch; the same array if it is small, or without a scratch."""
    scratch = _scratch.get()
    if scratch is None or values.nbytes < max(scratch.least_bytes, 1) or scratch.has(values):
        return values
    file = scratch.open()
    if file is None or not file.write(values, 0):
        return values
    return scratch.map(file, len(values), values.dtype)


def move_columns(frame: pl.DataFrame, names: list[str] | None = None) -> pl.DataFrame:
    """Return a frame whose large columns of numbers without null are in a scratch; the same frame without one.

    Args:
        frame: The frame.
        names: Of columns that may be moved; None: all. Those that share the memory of others should not.
    """
    scratch = _scratch.get()
    if scratch is None or frame.height * _WIDEST_BYTES < scratch.least_bytes:
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
