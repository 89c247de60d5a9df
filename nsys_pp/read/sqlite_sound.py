"""Small SQLite files of the plain form, read at once: every page and every row is checked, as SQLite's `quick_check` checks them.

The check is stricter than that of SQLite: a file that passes is intact for SQLite, which reads the same rows. A file that
does not pass raises `UnusualPageError`; SQLite then reads it, and describes damage in its own words.

Plain are files of tables with row ids alone, without indices, free pages and write-ahead log.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.arrays.byte_rows import check_fields, read_number_rows
from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Int64s
from nsys_pp.read.sqlite_pages import (
    Bytes,
    Pages,
    UnusualPageError,
    open_pages,
    read_pages,
    read_pointers,
    read_successive,
    read_varints,
    view_words,
)

_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
_FILE_HEADER = 100  # bytes before the header of the first page
_MAGIC = b"SQLite format 3\0"
_PENDING, _SHARED = 1 << 30, (510, (1 << 30) + 2)  # bytes that programs lock: length and first byte
_FRACTIONS = bytes((64, 32, 32))  # of payloads in pages, which are fixed
_FORMATS = (1, 2, 3, 4)
_LEAST_CELL = 4  # bytes
_MOST_LEVELS = 20
_MOST_ODD_PAGES = 64  # checked one by one; in files of one writing, pages with gaps are few
_BOUND = np.iinfo(np.int64)


class Trees(Struct, frozen=True):
    """Leaf pages of several tables: by table, and in order of row ids."""

    pages: Int64s
    table: Int64s
    above: Int64s  # row ids of a page are greater than this
    last: Int64s  # and not greater than this
    visited: Int64s  # all pages, with those above the leaves


class Rows(Struct, frozen=True):
    """Rows of several tables: by table, and in order of row ids."""

    bounds: list[int]  # of the rows of each table: first of each, and the number of all
    row_ids: Int64s
    headers: Int64s  # position of each row's header, which is the start of its payload
    lengths: Int64s  # bytes of the header
    codes: Int64s  # position of its storage classes, behind its length
    sizes: Int64s  # bytes of the whole payload
    local: Int64s  # bytes of the payload in the page; the rest is in overflow pages
    overflow: list[list[int]]  # overflow pages of each row that has some, in order of rows


def load_file(path: Path, most_bytes: int) -> tuple[Pages, Bytes]:
    """Read a whole file, with padding; meanwhile no program writes to it.

    Raises:
        UnusualPageError: It has more bytes, its header is not of the plain form, or a program is writing it.
        OSError: It cannot be opened.
    """
    if not hasattr(os, "preadv"):  # Windows
        raise UnusualPageError
    file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        _lock(file)
        pages = open_pages(file)
        size = os.fstat(file).st_size
        if size > most_bytes or size != pages.count * pages.size:
            raise UnusualPageError
        buffer = read_pages(pages, np.arange(1, pages.count + 1))
    finally:
        os.close(file)
    header = buffer[:_FILE_HEADER].tobytes()
    counts = {at: int.from_bytes(header[at : at + 4], "big") for at in (32, 36, 44, 52, 56, 64)}
    is_plain = header.startswith(_MAGIC) and header[21:24] == _FRACTIONS
    is_plain = is_plain and counts.pop(44) in _FORMATS and counts.pop(56) == 1
    if not is_plain or any(counts.values()):  # free pages, or pages that are moved by themselves
        raise UnusualPageError
    return pages, buffer


def _lock(file: int) -> None:
    """Lock a file as SQLite does to read it, until it is closed: https://sqlite.org/lockingv3.html.

    Raises:
        UnusualPageError: Another program writes it, or its file system has no locks.
    """
    import fcntl  # not on Windows

    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _PENDING)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, *_SHARED)
        fcntl.lockf(file, fcntl.LOCK_UN, 1, _PENDING)
    except OSError:
        raise UnusualPageError from None


def walk_trees(pages: Pages, buffer: Bytes, roots: Int64s) -> Trees:
    """Walk tables from their root pages to their leaf pages.

    Raises:
        UnusualPageError: A page is none of a table, or leaves are not at one depth.
    """
    level, table = roots, np.arange(len(roots))
    above, last = np.full(len(roots), _BOUND.min), np.full(len(roots), _BOUND.max)
    visited, leaves = [], []
    for _ in range(_MOST_LEVELS):
        visited.append(level)
        if level.min() < 1 or level.max() > pages.count or sum(map(len, visited)) > pages.count:
            raise UnusualPageError
        kind = buffer[_find_heads(pages, level)]
        is_leaf, is_interior = kind == _LEAF, kind == _INTERIOR
        if not (is_leaf | is_interior).all() or np.isin(table[is_leaf], table[is_interior]).any():
            raise UnusualPageError
        leaves.append((level[is_leaf], table[is_leaf], above[is_leaf], last[is_leaf]))
        if is_leaf.all():
            found = [np.concatenate(columns) for columns in zip(*leaves, strict=True)]
            order = np.argsort(found[1], kind="stable")  # leaves of a table are of one level, in order
            pages_of, table_of, above_of, last_of = (column[order] for column in found)
            return Trees(pages_of, table_of, above_of, last_of, np.concatenate(visited))
        level, table, above, last = _descend(
            pages, buffer, level[is_interior], table[is_interior], above[is_interior], last[is_interior]
        )
    raise UnusualPageError


def find_rows(pages: Pages, buffer: Bytes, trees: Trees, table_count: int) -> Rows:
    """Find the rows of leaf pages; each page is filled by them, and their ids ascend within its bounds.

    Raises:
        UnusualPageError: A page is damaged.
    """
    at, counts = _find_cells(pages, buffer, trees.pages, _LEAF_HEADER)
    (sizes, row_ids, lengths), (_, headers, codes) = read_successive(buffer, at, 3)
    most, least = pages.usable - 35, (pages.usable - 12) * 32 // 255 - 23
    if sizes.size and (sizes.min() < 1 or sizes.max() > buffer.size):
        raise UnusualPageError
    local = sizes
    if sizes.size and sizes.max() > most:
        kept = least + (sizes - least) % (pages.usable - 4)
        local = np.where(sizes <= most, sizes, np.where(kept <= most, kept, least))
    long = np.flatnonzero(local < sizes)
    stops = headers + local
    stops[long] += 4
    _check_filling(pages, buffer, trees.pages, counts, at, np.maximum(stops, at + _LEAST_CELL))
    page = np.repeat(np.arange(len(counts)), counts)
    is_next = page[1:] == page[:-1]
    if (row_ids[1:] <= row_ids[:-1])[is_next].any():
        raise UnusualPageError
    if ((row_ids <= trees.above[page]) | (row_ids > trees.last[page])).any():
        raise UnusualPageError
    of_table = np.bincount(trees.table, weights=counts, minlength=table_count).astype(np.int64)
    if (counts == 0).any() and (np.bincount(trees.table)[trees.table[counts == 0]] > 1).any():
        raise UnusualPageError
    overflow = [
        _follow(pages, buffer, int(headers[row] + local[row]), int(sizes[row] - local[row])) for row in long
    ]
    bounds = [0, *np.cumsum(of_table).tolist()]
    return Rows(bounds, row_ids, headers, lengths, codes, sizes, local, overflow)


def read_last_ids(pages: Pages, buffer: Bytes, roots: Int64s) -> list[int]:
    """Read the last row id of each table from its last pages, as SQLite does; 0 for an empty one.

    Raises:
        UnusualPageError: One of these pages is damaged.
    """
    level = roots.copy()
    for _ in range(_MOST_LEVELS):
        if level.min() < 1 or level.max() > pages.count:
            raise UnusualPageError
        heads = _find_heads(pages, level)
        interior = np.flatnonzero(buffer[heads] == _INTERIOR)
        if not len(interior):
            break
        _, counts = _find_cells(pages, buffer, level[interior], _INTERIOR_HEADER)
        if (counts == 0).any():
            raise UnusualPageError
        level[interior] = view_words(buffer, ">u4")[heads[interior] + 8]
    if (buffer[_find_heads(pages, level)] != _LEAF).any():
        raise UnusualPageError
    at, counts = _find_cells(pages, buffer, level, _LEAF_HEADER)
    if (counts[level != roots] == 0).any():
        raise UnusualPageError
    last = np.zeros(len(roots), dtype=np.int64)
    filled = counts > 0
    _, ends = read_varints(buffer, at[np.cumsum(counts)[filled] - 1])
    last[filled], _ = read_varints(buffer, ends)
    found: list[int] = last.tolist()
    return found


def check_pages(pages: Pages, *groups: Int64s) -> None:
    """Check that each page of the file is in one group, once.

    Raises:
        UnusualPageError: A page is not, or is twice.
    """
    uses = np.bincount(np.concatenate(groups), minlength=pages.count + 1)
    if len(uses) != pages.count + 1 or (uses[1:] != 1).any():
        raise UnusualPageError


def check_values(core: Core, buffer: Bytes, rows: Rows, table: int, allowed: npt.NDArray[np.uint8]) -> None:
    """Check the headers of the rows of a table, and the kinds and the lengths of their values.

    Args:
        core: The library.
        buffer: The file.
        rows: Its rows.
        table: Number of the table.
        allowed: Kinds of the values of each column (`check_fields`).

    Raises:
        UnusualPageError: A row has other values.
    """
    of_table = slice(rows.bounds[table], rows.bounds[table + 1])
    lengths = rows.lengths[of_table]
    if (lengths > rows.local[of_table]).any():
        raise UnusualPageError
    stops = rows.headers[of_table] + lengths
    codes = read_number_rows(core, buffer, rows.codes[of_table], stops, len(allowed))
    if codes is None or not check_fields(codes, allowed, rows.sizes[of_table] - lengths):
        raise UnusualPageError


def join_payload(pages: Pages, buffer: Bytes, rows: Rows, row: int) -> bytes:
    """Join the parts of a row that are in several pages."""
    start, local, size = int(rows.headers[row]), int(rows.local[row]), int(rows.sizes[row])
    payload = buffer[start : start + local].tobytes()
    if local < size:
        at = int(np.count_nonzero(rows.local[:row] < rows.sizes[:row]))
        starts = ((page - 1) * pages.size for page in rows.overflow[at])
        payload += b"".join(buffer[start + 4 : start + pages.usable].tobytes() for start in starts)
    return payload[:size]


def _find_heads(pages: Pages, numbers: Int64s) -> Int64s:
    """Find the header of each page."""
    return (numbers - 1) * pages.size + np.where(numbers == 1, _FILE_HEADER, 0)


def _find_cells(pages: Pages, buffer: Bytes, numbers: Int64s, header_bytes: int) -> tuple[Int64s, Int64s]:
    """Find the position of each cell, and the number of cells of each page."""
    words, heads = view_words(buffer, ">u2"), _find_heads(pages, numbers)
    counts, content = words[heads + 3].astype(np.int64), _read_content(pages, buffer, numbers)
    starts = (numbers - 1) * pages.size
    if (heads + header_bytes + 2 * counts > content).any() or (content > starts + pages.usable).any():
        raise UnusualPageError
    first, last = heads + header_bytes, pages.usable - _LEAST_CELL
    return read_pointers(buffer, first, counts, starts, content - starts, last), counts


def _read_content(pages: Pages, buffer: Bytes, numbers: Int64s) -> Int64s:
    """Read the position of the first byte of the cells of each page."""
    offset = view_words(buffer, ">u2")[_find_heads(pages, numbers) + 5].astype(np.int64)
    offset[offset == 0] = 65_536
    return (numbers - 1) * pages.size + offset


def _check_filling(
    pages: Pages, buffer: Bytes, numbers: Int64s, counts: Int64s, at: Int64s, ends: Int64s
) -> None:
    """Check that cells fill the end of their page without gap, as in files of one writing: each begins where the next ends."""
    heads, starts = _find_heads(pages, numbers), (numbers - 1) * pages.size
    stops = np.cumsum(counts)
    following = np.empty_like(at)  # where each cell should end
    following[1:] = at[:-1]
    filled = np.flatnonzero(counts)
    following[(stops - counts)[filled]] = starts[filled] + pages.usable
    lowest = starts + pages.usable
    lowest[filled] = at[stops[filled] - 1]
    is_odd = (lowest != _read_content(pages, buffer, numbers)) | (view_words(buffer, ">u2")[heads + 1] != 0)
    is_odd |= buffer[heads + 7] != 0
    is_odd[np.repeat(np.arange(len(counts)), counts)[ends != following]] = True
    odd = np.flatnonzero(is_odd).tolist()
    if len(odd) > _MOST_ODD_PAGES:
        raise UnusualPageError
    for page in odd:
        of_page, start = slice(stops[page] - counts[page], stops[page]), int(starts[page])
        cells = list(zip((at[of_page] - start).tolist(), (ends[of_page] - start).tolist(), strict=True))
        _check_gaps(pages, buffer[start : start + pages.size].tobytes(), int(heads[page]) - start, cells)


def _check_gaps(pages: Pages, page: bytes, head: int, cells: list[tuple[int, int]]) -> None:
    """Check that cells and free blocks of a page do not overlap, and that all other gaps are in its count of free bytes."""
    content = int.from_bytes(page[head + 5 : head + 7], "big") or 65_536
    block, used = int.from_bytes(page[head + 1 : head + 3], "big"), list(cells)
    while block:
        following, size = (int.from_bytes(page[at : at + 2], "big") for at in (block, block + 2))
        is_next = following > block + size + 3 or not following
        if block < content or size < _LEAST_CELL or block + size > pages.usable or not is_next:
            raise UnusualPageError
        used.append((block, block + size))
        block = following
    end, gaps = content, 0
    for start, stop in sorted(used):
        if start < end:
            raise UnusualPageError
        gaps, end = gaps + start - end, stop
    if end > pages.usable or gaps + pages.usable - end != page[head + 7]:
        raise UnusualPageError


def _descend(
    pages: Pages, buffer: Bytes, numbers: Int64s, table: Int64s, above: Int64s, last: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the children of interior pages, with the table and the bounds of each."""
    at, counts = _find_cells(pages, buffer, numbers, _INTERIOR_HEADER)
    if (counts == 0).any():
        raise UnusualPageError
    keys, ends = read_varints(buffer, at + 4)
    _check_filling(pages, buffer, numbers, counts, at, np.maximum(ends, at + _LEAST_CELL))
    words, places = view_words(buffer, ">u4"), np.cumsum(counts)
    # the last child of a page comes after the others, and has no key of its own
    right = words[_find_heads(pages, numbers) + 8].astype(np.int64)
    children = np.insert(words[at].astype(np.int64), places, right)
    keys = np.insert(keys, places, last)
    lower = np.concatenate([above[:1], keys[:-1]])
    lower[np.concatenate([[0], (places + np.arange(1, len(counts) + 1))[:-1]])] = above
    if (keys <= lower).any():
        raise UnusualPageError
    return children, np.repeat(table, counts + 1), lower, keys


def _follow(pages: Pages, buffer: Bytes, at: int, size: int) -> list[int]:
    """List the overflow pages that hold the last bytes of a row; the first number is at a position."""
    found = []
    for _ in range(-(-size // (pages.usable - 4))):
        page = int.from_bytes(buffer[at : at + 4].tobytes(), "big")
        if not 1 <= page <= pages.count:
            raise UnusualPageError
        found.append(page)
        at = (page - 1) * pages.size
    if buffer[at : at + 4].any():
        raise UnusualPageError
    return found
