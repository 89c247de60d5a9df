"""Rows of SQLite leaf pages as columns: all cells of a block at once.

A cell is the length of the payload, the row id and the payload: a header with the type of each value, then the values
one after the other. So the position of a value follows from the types before it, and is found column by column for all
rows. Every position is checked before anything is read there; where a row is unusual, the result is None, and SQLite reads
the table.

Format: https://www.sqlite.org/fileformat2.html, sections 1.6 (cells) and 2.1 (records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Bytes, Int64s
from nsys_pp.read.sqlite_pages import PADDING_BYTES, PageFile, find_leaf_cells

Kind = Literal["integer", "real", "text"]
Kinds = npt.NDArray[np.integer[Any]]
_Located = dict[int, tuple[Kinds, Int64s, Kinds]]  # type, position and size by column
_MOST_VARINT_BYTES = 9
_REAL, _ZERO, _ONE, _FIRST_BYTES = 7, 8, 9, 12  # types of values; from 12 on blobs and texts, by length
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0])  # bytes of a value by type, below blobs and texts
_SHIFTS = np.array([0, 56, 48, 40, 32, 16, 0, 0, 0, 0])  # bits of a word after an integer of each type
_CONTINUED = 0x80  # bit of a byte of a number that has further bytes
_NO_SIZE = 255
# bytes of a value by type, of types of one byte
_BYTE_SIZES = np.array(
    [*_SIZES, _NO_SIZE, _NO_SIZE, *((kind - _FIRST_BYTES) // 2 for kind in range(_FIRST_BYTES, 256))],
    dtype=np.uint8,
)
_MOST_BYTES = 1 << 31
_SEPARATOR = 0  # between texts that are decoded together


class Wanted(Struct, frozen=True):
    """A column to read.

    Attributes:
        index: Position in the records; -1: the row id.
        kind: Kind of its values.
        is_row_id: The column is another name of the row id: it is stored as null.
        dtype: Type of integers, if they fit.
    """

    index: int
    kind: Kind
    is_row_id: bool = False
    dtype: npt.DTypeLike = np.int64


class Values(Struct, frozen=True):
    """Values of a column: integers, reals, or texts.

    Attributes:
        values: One per row; 0, or an empty text, for null.
        is_null: Mask of nulls; None: there are none, or the values are texts.
    """

    values: npt.NDArray[np.integer[Any]] | npt.NDArray[np.float64] | pl.Series
    is_null: Bools | None


class _Cells(Struct, frozen=True):
    """Cells of a block: row id, begin of the record, and end of its part on this page."""

    row_id: Int64s
    begin: Int64s
    end: Int64s


def read_records(file: PageFile, block: Bytes, wanted: Sequence[Wanted]) -> list[Values] | None:
    """Read columns of the rows of a block of leaf pages.

    Args:
        file: The file.
        block: From `read_blocks`.
        wanted: Columns, each of another index.

    Returns:
        Values of each column, in order of row ids; None where a page is damaged, or a row unusual: of fewer columns than
        the table, with values on overflow pages, or of another kind than the column.
    """
    found = find_leaf_cells(file, block)
    cells = None if found is None else _read_cells(file, block, *found)
    if cells is None or (np.diff(cells.row_id) <= 0).any():
        return None
    located = _locate(block, cells, {column.index for column in wanted})
    if located is None:
        return None
    columns = []
    for column in wanted:
        values = _read_values(block, cells, column, located)
        if values is None:
            return None
        columns.append(values)
    return columns


def _read_cells(file: PageFile, block: Bytes, page: Int64s, at: Int64s) -> _Cells | None:
    end_of_page = page * file.page_bytes + file.usable_bytes
    length = _read_varints(block, at, end_of_page)
    row_id = None if length is None else _read_varints(block, length[1], end_of_page)
    if length is None or row_id is None:
        return None
    size, begin = length[0], row_id[1]
    if (size < 0).any() or (size > _MOST_BYTES).any():
        return None
    most = file.usable_bytes - 35
    end = begin + size
    if (size > most).any():  # the rest is on overflow pages
        least = (file.usable_bytes - 12) * 32 // 255 - 23
        here = least + (size - least) % (file.usable_bytes - 4)
        end = np.where(size > most, begin + np.where(here <= most, here, least), end)
    return None if (end > end_of_page).any() else _Cells(row_id[0], begin, end)


def _locate(block: Bytes, cells: _Cells, indices: set[int]) -> dict[int, tuple[Kinds, Int64s]] | None:
    """Find the type and the place of the values of columns, by index."""
    header = _read_varints(block, cells.begin, cells.end)
    if header is None:
        return None
    length, at = header
    if (length < 0).any() or (length > cells.end - cells.begin).any():
        return None
    end_of_header, count = cells.begin + length, max(indices) + 1
    if (end_of_header - at < count).any():
        return None
    located = _locate_values(block, at, end_of_header, indices, count)
    if located is None or any((position + size > cells.end).any() for _, position, size in located.values()):
        return None
    return {index: (kinds, position) for index, (kinds, position, _) in located.items()}


def _locate_values(
    block: Bytes, at: Int64s, end_of_header: Int64s, indices: set[int], count: int
) -> _Located | None:
    """Find values: first as if all types were single bytes, which takes half the passes; then the rows where not."""
    position = end_of_header.copy()
    located: _Located = {}
    all_kinds, largest = np.zeros(len(at), dtype=np.uint8), np.zeros(len(at), dtype=np.uint8)
    for index in range(count):
        kinds = block.take(at + index)
        size = _BYTE_SIZES.take(kinds)
        all_kinds |= kinds
        np.maximum(largest, size, out=largest)
        if index in indices:
            located[index] = kinds, position.copy(), size
        position += size
    rows = np.flatnonzero((all_kinds >= _CONTINUED) | (largest == _NO_SIZE))
    if not len(rows):
        return located
    others = _locate_by_varints(block, at[rows], end_of_header[rows], indices, count)
    if others is None:
        return None
    return {index: _replace(rows, columns, others[index]) for index, columns in located.items()}


def _replace(
    rows: Int64s, columns: tuple[Kinds, Int64s, Kinds], others: tuple[Kinds, Int64s, Kinds]
) -> tuple[Kinds, Int64s, Kinds]:
    """Replace the values of some rows."""
    kinds, position, size = (column.astype(np.int64) for column in columns)
    kinds[rows], position[rows], size[rows] = others
    return kinds, position, size


def _locate_by_varints(
    block: Bytes, at: Int64s, end_of_header: Int64s, indices: set[int], count: int
) -> _Located | None:
    position = end_of_header
    located: _Located = {}
    for index in range(count):
        kind = _read_varints(block, at, end_of_header)
        if kind is None:
            return None
        kinds, at = kind
        size = _measure(kinds)
        if size is None:
            return None
        if index in indices:
            located[index] = kinds, position, size
        position = position + size
    return located


def _measure(kinds: Int64s) -> Int64s | None:
    """Return the bytes of values by type; None for types that no file has, and lengths that no record has."""
    if int(kinds.min(initial=0)) < 0 or int(kinds.max(initial=0)) > 2 * _MOST_BYTES:
        return None
    if ((kinds == 10) | (kinds == 11)).any():
        return None
    return np.where(kinds < _FIRST_BYTES, _SIZES.take(np.minimum(kinds, _ONE)), (kinds - _FIRST_BYTES) >> 1)


def _read_values(
    block: Bytes, cells: _Cells, column: Wanted, located: dict[int, tuple[Kinds, Int64s]]
) -> Values | None:
    if column.index < 0:
        return Values(cells.row_id, None)
    kinds, position = located[column.index]
    if column.is_row_id:
        return None if kinds.any() else Values(cells.row_id, None)
    if column.kind == "text":
        return _read_texts(block, kinds, position)
    if kinds.max(initial=0) > _ONE:
        return None
    is_null = kinds == 0 if kinds.min(initial=1) == 0 else None
    if column.kind == "real":
        return _read_reals(block, kinds, position, is_null)
    if kinds.max(initial=0) >= _REAL and (kinds == _REAL).any():
        return None
    return Values(_narrow(_read_integers(block, kinds, position), column.dtype), is_null)


def _read_integers(block: Bytes, kinds: Kinds, position: Int64s) -> Int64s:
    """Read integers; 0 for null."""
    least, largest = int(kinds.min(initial=_ONE)), int(kinds.max(initial=0))
    if least == largest and least in (0, _ZERO, _ONE):
        return np.full(len(kinds), least == _ONE, dtype=np.int64)
    integers: Int64s = _read_words(block, position) >> _SHIFTS.take(kinds)
    if least == 0:
        integers[kinds == 0] = 0
    if largest >= _ZERO:
        integers[kinds == _ZERO] = 0
        integers[kinds == _ONE] = 1
    return integers


def _read_reals(block: Bytes, kinds: Kinds, position: Int64s, is_null: Bools | None) -> Values:
    """Read reals; some may be stored as integers, and SQLite reads a NaN as null."""
    integers = _read_integers(block, np.where(kinds == _REAL, 0, kinds), position)
    reals = np.where(
        kinds == _REAL, _read_words(block, position).view(np.float64), integers.astype(np.float64)
    )
    is_null = np.isnan(reals) if is_null is None else is_null | np.isnan(reals)
    return Values(np.where(is_null, 0.0, reals), is_null if is_null.any() else None)


def _narrow(values: Int64s, dtype: npt.DTypeLike) -> npt.NDArray[np.integer[Any]]:
    """Convert values to a narrower type, if all fit."""
    bounds = np.iinfo(np.dtype(dtype).type)
    fits = bounds.min <= values.min(initial=0) and values.max(initial=0) <= bounds.max
    return values.astype(dtype) if fits else values


def _read_texts(block: Bytes, kinds: Kinds, position: Int64s) -> Values | None:
    """Read texts; null where one is not UTF-8, or holds the separator."""
    if ((kinds > 0) & (kinds < _FIRST_BYTES + 1) | (kinds % 2 == 0) & (kinds > 0)).any():
        return None
    rows = np.flatnonzero(kinds > _FIRST_BYTES + 1)
    if not len(rows):
        return Values(pl.Series([""], dtype=pl.String).new_from_index(0, len(kinds)), None)
    length = (kinds[rows].astype(np.int64) - _FIRST_BYTES - 1) >> 1
    # one byte more of each, which becomes the separator; the padding has room for the last one
    texts = block.take(expand_windows(position[rows], position[rows] + length + 1))
    texts[np.cumsum(length + 1) - 1] = _SEPARATOR
    if np.count_nonzero(texts == _SEPARATOR) != len(rows):
        return None
    try:
        joined = texts[:-1].tobytes().decode()
    except UnicodeDecodeError:
        return None
    split = pl.Series([joined]).str.split(chr(_SEPARATOR)).explode()
    if len(rows) == len(kinds):
        return Values(split, None)
    number = np.full(len(kinds), len(rows), dtype=np.uint32)
    number[rows] = np.arange(len(rows), dtype=np.uint32)
    return Values(split.extend(pl.Series([""]))[number], None)


def _read_words(block: Bytes, position: Int64s) -> Int64s:
    """Read the eight bytes from each position on as a signed big-endian number.

    Two reads of aligned words take a fraction of the time of one that is not aligned.
    """
    aligned = block[: len(block) // 8 * 8].view("<u8")
    word, shift = position >> 3, ((position & 7) << 3).astype(np.uint64)
    low = aligned.take(word) >> shift
    high = aligned.take(word + 1) << np.uint64(1) << (np.uint64(63) - shift)
    return (low | high).byteswap().view(np.int64)


def _read_varints(block: Bytes, at: Int64s, end: Int64s) -> tuple[Int64s, Int64s] | None:
    """Read a number of one to nine bytes at each position.

    Returns:
        Numbers; places after these. None if one would reach beyond its end.
    """
    if (at >= end).any():
        return None
    first = block.take(at)
    if first.max(initial=0) < _CONTINUED:
        return first.astype(np.int64), at + 1
    value, after = first.astype(np.int64), at + 1
    rows = np.flatnonzero(first >= 0x80)
    value[rows] &= 0x7F
    for number in range(1, _MOST_VARINT_BYTES):
        if not len(rows):
            break
        if (after[rows] >= end[rows]).any():
            return None
        byte = block.take(after[rows]).astype(np.int64)
        after[rows] += 1
        if number == _MOST_VARINT_BYTES - 1:  # the ninth byte has eight bits
            value[rows] = value[rows] << 8 | byte
            break
        value[rows] = value[rows] << 7 | byte & 0x7F
        rows = rows[byte >= 0x80]
    return value, after


assert PADDING_BYTES >= 16  # `_read_words` reads up to 15 bytes after a position
