"""Check of b-trees before SQLite walks them: a page that is the child of several others is walked again for each of them.

A file of 100 kB can describe 10^30 rows in this way, and SQLite would step through all of them. Where each page occurs
once, the work on a file is limited by its size.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_INTERIOR = (0x02, 0x05)  # of indices and of tables
_MOST_LEVELS = 20
_FILE_HEADER = 100  # bytes of the first page
_WINDOW_BYTES = 16 << 20  # of pages that are read before they are dropped from memory


class _Pages:
    """Pages of a file; few are in memory at a time, as a tree may have all pages of a large file.

    Args:
        file: A file that is not empty.
        size: Bytes of a page.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.size = size
        self.count = len(self._bytes) // size

    def read(self, number: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a page."""
        return np.asarray(self._bytes[(number - 1) * self.size : number * self.size])

    def read_kinds(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the kind of each page: its first byte, or that after the header of the file."""
        kinds = np.empty(len(numbers), dtype=np.uint8)
        window = _WINDOW_BYTES // self.size
        for first in range(0, len(numbers), window):
            own = numbers[first : first + window]
            at = (own - 1) * self.size + np.where(own == 1, _FILE_HEADER, 0)
            kinds[first : first + window] = self._bytes[at]
            if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                self._map.madvise(mmap.MADV_DONTNEED)
        return kinds


def has_endless_tree(path: Path, roots: Iterable[int]) -> bool:
    """Return whether a tree has more pages than the file; nothing else is checked.

    Args:
        path: A SQLite file whose header was checked.
        roots: Root pages of tables.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(_FILE_HEADER)
        size = int.from_bytes(header[16:18], "big")
        size = 65_536 if size == 1 else size
        if size < 512:
            return False  # SQLite refuses it
        pages = _Pages(file, size)
        wanted = np.array([*{*roots}], dtype=np.int64)
        return any(_is_endless(pages, root) for root in _find_interior(pages, wanted).tolist())


def _find_interior(pages: _Pages, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers of pages in the file that have children."""
    numbers = numbers[(numbers >= 1) & (numbers <= pages.count)]
    kind = pages.read_kinds(numbers)
    interior: npt.NDArray[np.int64] = numbers[(kind == _INTERIOR[0]) | (kind == _INTERIOR[1])]
    return interior


def _is_endless(pages: _Pages, root: int) -> bool:
    level = np.array([root], dtype=np.int64)
    visited = 0
    for _ in range(_MOST_LEVELS):
        visited += len(level)
        if visited > pages.count:
            return True
        interior = _find_interior(pages, level)
        if not len(interior):
            return False
        level = np.concatenate([_list_children(pages, page) for page in interior.tolist()])
    return True


def _list_children(pages: _Pages, number: int) -> npt.NDArray[np.int64]:
    """List the children of an interior page, in any order."""
    page, size = pages.read(number), pages.size
    head = _FILE_HEADER if number == 1 else 0
    first = head + 12
    pointers = page[first : first + 2 * (int(page[head + 3]) << 8 | int(page[head + 4]))]
    pairs = pointers[: len(pointers) // 2 * 2].reshape(-1, 2).astype(np.int64)
    at = np.append(pairs[:, 0] << 8 | pairs[:, 1], head + 8)
    at = at[at + 4 <= size]
    words = page[at[:, None] + np.arange(4)].astype(np.int64)
    children: npt.NDArray[np.int64] = words @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return children
