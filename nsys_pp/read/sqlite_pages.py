"""Pages of a SQLite table: the walk of its b-tree to the leaf pages, in order of row ids, and the cells of a page.

Nothing in a file is trusted: each page number, count and offset is checked before use, and a page is visited once.
A file that differs from the plain form raises `UnusualPageError`; SQLite then reads it, and reports damage.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.arrays.byte_rows import read_numbers, read_runs
from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.core import load_core

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

PADDING = 16  # bytes after a buffer, so that a word that begins at its last byte lies within
_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
_MAX_DEPTH = 20
_UTF8 = (0, 1)  # 0: an empty database
_ROLLBACK = 1


class UnusualPageError(Exception):
    """The file, or the pages of a table, are not of the plain form that is decoded here."""


class Pages(Struct, frozen=True):
    """The pages of an open file."""

    file: int  # descriptor
    size: int  # bytes of a page
    usable: int  # bytes of a page less those reserved at its end
    count: int


class Leaves(Struct, frozen=True):
    """Leaf pages of a table in order of row ids, each with its bounds in the interior pages."""

    pages: Ints
    above: Ints  # row ids of a page are greater than this
    last: Ints  # and not greater than this


def open_pages(file: int) -> Pages:
    """Read the header of the file `file`, an open descriptor.

    Raises:
        UnusualPageError: Not UTF-8, in write-ahead mode, or of a size that contradicts the header.
    """
    header = os.pread(file, 100, 0)
    if len(header) < 100 or header[18] != _ROLLBACK or header[19] != _ROLLBACK:
        raise UnusualPageError
    size = int.from_bytes(header[16:18], "big")
    size = 65_536 if size == 1 else size
    usable = size - header[20]
    if size < 512 or size & (size - 1) or usable < 480 or int.from_bytes(header[56:60], "big") not in _UTF8:
        raise UnusualPageError
    count = int.from_bytes(header[28:32], "big")
    if header[24:28] != header[92:96] or not 0 < count <= os.fstat(file).st_size // size:
        raise UnusualPageError
    return Pages(file=file, size=size, usable=usable, count=count)


def find_leaves(pages: Pages, root: int) -> Leaves:
    """Walk the interior pages of a table from page `root` to its leaf pages.

    Raises:
        UnusualPageError: It is not a table with row ids, or its pages are damaged.
    """
    bound = np.iinfo(np.int64)
    level = Leaves(np.array([root]), np.array([bound.min]), np.array([bound.max]))
    visited = []
    for _ in range(_MAX_DEPTH):
        if level.pages.size == 0 or level.pages.min() < 2 or level.pages.max() > pages.count:
            raise UnusualPageError
        visited.append(level.pages)
        kind = read_pages(pages, level.pages[:1])[0]
        if kind == _LEAF:
            seen = np.concatenate(visited)
            if list_distinct(seen).size != seen.size:
                raise UnusualPageError
            return level
        if kind != _INTERIOR or sum(map(len, visited)) > pages.count:
            raise UnusualPageError
        level = _descend(pages, level)
    raise UnusualPageError


def read_pages(pages: Pages, numbers: Ints) -> Bytes:
    """Read pages one after the other into one buffer, with `PADDING` zeros at its end.

    Raises:
        UnusualPageError: The file ends before them, or cannot be read.
    """
    buffer = np.empty(numbers.size * pages.size + PADDING, np.uint8)
    buffer[-PADDING:] = 0
    view = memoryview(buffer.data)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)
    ends = np.append(starts[1:], numbers.size)
    try:
        for start, end, number in zip(starts.tolist(), ends.tolist(), numbers[starts].tolist(), strict=True):
            part = view[start * pages.size : end * pages.size]
            if os.preadv(pages.file, [part], (number - 1) * pages.size) != len(part):
                raise UnusualPageError
    except OSError:
        raise UnusualPageError from None
    return buffer


def find_cells(pages: Pages, buffer: Bytes, *, is_leaf: bool) -> tuple[Ints, Ints]:
    """Find the cells of pages of one kind.

    Returns:
        The position of each cell in the buffer, in order of row ids, and the number of cells of each page.

    Raises:
        UnusualPageError: A page is of another kind or damaged.
    """
    count = buffer.size // pages.size
    heads = buffer[: count * pages.size].reshape(count, pages.size)[:, :12].astype(np.int64)
    first = _LEAF_HEADER if is_leaf else _INTERIOR_HEADER
    cells = heads[:, 3] << 8 | heads[:, 4]
    content = heads[:, 5] << 8 | heads[:, 6]
    content[content == 0] = 65_536
    free = heads[:, 1] << 8 | heads[:, 2]
    is_plain = (heads[:, 0] == (_LEAF if is_leaf else _INTERIOR)) & (first + 2 * cells <= content)
    is_plain &= (content <= pages.usable) & (free <= pages.usable - 4) & ((free == 0) | (free >= content))
    if not is_plain.all():
        raise UnusualPageError
    starts = np.arange(count) * pages.size
    at = read_pointers(buffer, starts + first, cells, starts, content, pages.usable - 4)
    return at, cells


def read_pointers(buffer: Bytes, at: Ints, counts: Ints, starts: Ints, content: Ints, last: int) -> Ints:
    """Read the pointers of pages to their cells.

    Args:
        buffer: Pages, with padding.
        at: Position of the first pointer of each page; all pointers are in the page.
        counts: Their number.
        starts: Position of the page.
        content: Offset in the page of the first byte of its cells.
        last: Offset of the last byte that may begin a cell.

    Returns:
        The positions of the cells.

    Raises:
        UnusualPageError: A pointer is to another part of the page.
    """
    core = load_core()
    found = None if core is None else read_runs(core, buffer, at, counts, starts, content, last)
    if found is not None:
        return found
    stops = np.cumsum(counts)
    pointers = np.repeat(at - 2 * (stops - counts), counts) + 2 * np.arange(counts.sum())
    offsets = view_words(buffer, ">u2")[pointers].astype(np.int64)
    if (offsets < np.repeat(content, counts)).any() or (offsets > last).any():
        raise UnusualPageError
    positions: Ints = np.repeat(starts, counts) + offsets
    return positions


def read_varints(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read one number at each position, as `read_successive`.

    Returns:
        Their values, and the positions after them.
    """
    values, ends = read_successive(buffer, at, 1)
    return values[0], ends[0]


def read_successive(buffer: Bytes, at: Ints, count: int) -> tuple[Ints, Ints]:
    """Read SQLite's variable-length integers, several that follow one another.

    Args:
        buffer: Pages, with padding.
        at: Positions within the pages.
        count: Of the numbers from each position on.

    Returns:
        Their values, and the positions after them: (`count`, positions).

    Raises:
        UnusualPageError: One begins behind the pages.
    """
    core = load_core()
    if core is not None and (found := read_numbers(core, buffer, at, count)) is not None:
        return found
    values, ends = np.empty((count, at.size), np.int64), np.empty((count, at.size), np.int64)
    for place in range(count):
        if at.size and at.max() > buffer.size - PADDING:
            raise UnusualPageError
        values[place], ends[place] = _read_in_numpy(buffer, at)
        at = ends[place]
    return values, ends


def _read_in_numpy(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    byte = buffer[at]
    values, is_more, common = (byte & 0x7F).astype(np.int64), byte >= 0x80, 1
    while common < 8 and is_more.size and is_more.all():  # as those of neighbours usually are: of one length
        byte = buffer[common:][at]
        values <<= 7
        values |= byte & 0x7F
        is_more = byte >= 0x80
        common += 1
    ends = at + common
    more = np.flatnonzero(is_more)
    for length in range(common + 1, 10):
        if more.size == 0:
            break
        byte = buffer[at[more] + (length - 1)]
        if length == 9:
            values[more] = values[more] << 8 | byte
        else:
            values[more] = values[more] << 7 | (byte & 0x7F)
        ends[more] += 1
        more = more[byte >= 0x80]
    return values, ends


def view_words(buffer: Bytes, dtype: Any) -> npt.NDArray[Any]:
    """View the word that begins at each byte, up to the last that lies within the buffer."""
    kind = np.dtype(dtype)
    return np.ndarray((buffer.size - kind.itemsize + 1,), kind, buffer, 0, (1,))


def _descend(pages: Pages, level: Leaves) -> Leaves:
    """Return the children of interior pages; the last child of a page has no key of its own."""
    buffer = read_pages(pages, level.pages)
    at, cells = find_cells(pages, buffer, is_leaf=False)
    keys, ends = read_varints(buffer, at + 4)
    if (ends > at // pages.size * pages.size + pages.usable).any() or (cells == 0).any():
        raise UnusualPageError
    words = view_words(buffer, ">u4")
    places = np.cumsum(cells)  # the last child comes after the others of its page
    children = np.insert(
        words[at].astype(np.int64), places, words[np.arange(cells.size) * pages.size + 8].astype(np.int64)
    )
    last = np.insert(keys, places, level.last)
    above = np.concatenate([level.above[:1], last[:-1]])
    if (last[1:] <= last[:-1]).any() or (
        above[np.concatenate([[0], (places + np.arange(cells.size) + 1)[:-1]])] != level.above
    ).any():
        raise UnusualPageError
    return Leaves(children, above, last)
