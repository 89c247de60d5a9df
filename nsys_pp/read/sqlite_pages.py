"""Pages of a SQLite file: the leaves of a table's b-tree in order of row ids, in blocks of bytes.

Only plain files are read here: UTF-8, no write-ahead log, tables with row ids. For anything else, and for pages that look
damaged, the functions return None, and SQLite itself reads the table and reports the damage.

Format: https://www.sqlite.org/fileformat2.html, sections 1.3 (header) and 1.6 (b-tree pages).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Bytes, Int64s

PADDING_BYTES = 16  # after each block, so that words of eight bytes can be read at its end
_BLOCK_BYTES = 1 << 20  # fits into the caches of a core, with the arrays of its rows
_HEADER_BYTES = 100
_UTF8, _ROLLBACK_JOURNAL = 1, 1
_INTERIOR, _LEAF = 5, 13  # types of b-tree pages of tables with row ids
_LEAST_USABLE_BYTES = 480
_MOST_LEVELS = 20  # as in SQLite itself


class PageFile(Struct, frozen=True):
    """A SQLite file that is open for reading.

    Attributes:
        descriptor: Of the open file.
        page_bytes: Size of a page: a power of 2.
        usable_bytes: Bytes of a page that hold data.
        page_count: Whole pages of the file; they are numbered from 1.
    """

    descriptor: int
    page_bytes: int
    usable_bytes: int
    page_count: int


def open_pages(path: Path) -> PageFile | None:
    """Open a SQLite file; None if it is not plain. The caller closes the descriptor."""
    if any(path.with_name(f"{path.name}-{kind}").exists() for kind in ("journal", "wal")):
        return None
    if not hasattr(os, "pread"):  # Windows
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    header = os.pread(descriptor, _HEADER_BYTES, 0)
    pages = _read_header(descriptor, header) if len(header) == _HEADER_BYTES else None
    if pages is None:
        os.close(descriptor)
    return pages


def _read_header(descriptor: int, header: bytes) -> PageFile | None:
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    is_plain = (
        512 <= page_bytes <= 1 << 16
        and page_bytes & (page_bytes - 1) == 0
        and page_bytes - header[20] >= _LEAST_USABLE_BYTES
        and header[18] == header[19] == _ROLLBACK_JOURNAL
        and int.from_bytes(header[56:60], "big") == _UTF8
    )
    if not is_plain:
        return None
    page_count = os.fstat(descriptor).st_size // page_bytes
    return PageFile(descriptor, page_bytes, page_bytes - header[20], page_count)


def list_leaves(file: PageFile, root: int) -> Int64s | None:
    """List the leaf pages of a table, in order of row ids.

    Args:
        file: The file.
        root: Root page of the table.

    Returns:
        Numbers of pages; None if the b-tree is damaged, or not of a table with row ids.
    """
    level, seen = np.array([root], dtype=np.int64), 0
    for _ in range(_MOST_LEVELS):
        seen += len(level)
        if seen > file.page_count or level.min() < 2 or level.max() > file.page_count:
            return None
        first = _read_run(file, int(level[0]), 1)
        if first is None or first[0] not in (_INTERIOR, _LEAF):
            return None
        if first[0] == _LEAF:
            return level if len(np.unique(level)) == len(level) else None
        below = [_list_children(file, block) for block in read_blocks(file, level)]
        known = [children for children in below if children is not None]
        if len(known) < len(below):
            return None
        level = np.concatenate(known)
    return None


def _list_children(file: PageFile, block: Bytes | None) -> Int64s | None:
    """List the children of a block of interior pages, in order."""
    if block is None:
        return None
    pages = block[:-PADDING_BYTES].reshape(-1, file.page_bytes)
    cells = find_cells(file, block, _INTERIOR)
    if cells is None:
        return None
    page, at = cells
    children = read_number(block, at, 4)
    right = read_number(block, np.arange(len(pages)) * file.page_bytes + 8, 4)
    order = np.argsort(
        np.concatenate([page, np.arange(len(pages))]), kind="stable"
    )  # the right child is the last
    return np.concatenate([children, right])[order]


def find_cells(file: PageFile, block: Bytes, kind: int) -> tuple[Int64s, Int64s] | None:
    """Find the cells of a block of b-tree pages of one kind, in order of row ids.

    Returns:
        Page of each cell, from 0; position of the cell in the block. None if a page is of another kind, or damaged.
    """
    begin = np.arange((len(block) - PADDING_BYTES) // file.page_bytes) * file.page_bytes
    head_bytes = 12 if kind == _INTERIOR else 8
    count = read_number(block, begin + 3, 2)
    after = head_bytes + 2 * count
    if (block[begin] != kind).any() or (after > file.usable_bytes).any():
        return None
    page = np.repeat(np.arange(len(begin)), count)
    number = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count)
    offset = read_number(block, begin[page] + head_bytes + 2 * number, 2)
    if (offset < after[page]).any() or (offset > file.usable_bytes - 4).any():
        return None
    return page, begin[page] + offset


def find_leaf_cells(file: PageFile, block: Bytes) -> tuple[Int64s, Int64s] | None:
    """Find the cells of a block of leaf pages, as `find_cells`."""
    return find_cells(file, block, _LEAF)


def read_number(block: Bytes, at: Int64s, size: int) -> Int64s:
    """Read unsigned big-endian numbers of at most four bytes."""
    value = np.zeros(len(at), dtype=np.int64)
    for index in range(size):
        value = value << 8 | block.take(at + index)
    return value


def read_blocks(file: PageFile, pages: Int64s) -> Iterator[Bytes | None]:
    """Read pages in blocks.

    Args:
        file: The file.
        pages: Numbers of pages of the file, in any order.

    Yields:
        The bytes of the next pages in the given order, and `PADDING_BYTES` zeros; None where the file ends early.
    """
    count = max(1, _BLOCK_BYTES // file.page_bytes)
    for first in range(0, len(pages), count):
        own = pages[first : first + count]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(own) != 1) + 1, [len(own)]]).tolist()
        runs = [_read_run(file, int(own[begin]), stop - begin) for begin, stop in pairwise(bounds)]
        known = [run for run in runs if run is not None]
        yield (
            np.concatenate([*known, np.zeros(PADDING_BYTES, dtype=np.uint8)])
            if len(known) == len(runs)
            else None
        )


def _read_run(file: PageFile, first: int, count: int) -> Bytes | None:
    """Read consecutive pages; None where the file ends early, or cannot be read."""
    try:
        data = os.pread(file.descriptor, count * file.page_bytes, (first - 1) * file.page_bytes)
    except OSError:
        return None
    return np.frombuffer(data, dtype=np.uint8) if len(data) == count * file.page_bytes else None
