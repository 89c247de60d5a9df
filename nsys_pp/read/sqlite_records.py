"""Columns of the rows of leaf pages, decoded for all rows at once.

A row is a header, with the storage class ("serial type") of each column, and the values one after the other.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.segments import expand_windows
from nsys_pp.read.broken_text import decode_text
from nsys_pp.read.sqlite_pages import (
    Bytes,
    Ints,
    Leaves,
    Pages,
    UnusualPageError,
    find_cells,
    read_pages,
    read_varints,
    view_words,
)

# bytes of a value by serial type; 10 and 11 are reserved
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)
_SHORT_SIZES = np.concatenate([_SIZES, np.arange(128 - 12) // 2]).astype(np.uint8)
_REAL, _ZERO, _ONE, _FIRST_BLOB = 7, 8, 9, 12
_LONGEST_HEADER = 128  # of those decoded as a matrix: their length is one byte


class Wanted(Struct, frozen=True):
    """A column to decode."""

    name: str  # of the result
    position: int | None  # in the table; None: the row id
    is_row_id: bool  # an INTEGER PRIMARY KEY: stored as NULL, and means the row id
    is_text: bool


class _Rows(Struct, frozen=True):
    buffer: Bytes
    row_ids: Ints
    headers: Ints  # position of each row's header, which is the start of its payload
    sizes: Ints  # bytes of the whole payload
    local: Ints  # bytes of the payload in the page; the rest is in overflow pages


_Fields = dict[int, tuple[Ints | Bytes, Ints]]  # position of a column -> serial types, positions of values


def decode_rows(pages: Pages, leaves: Leaves, width: int, wanted: list[Wanted]) -> pl.DataFrame:
    """Decode columns of all rows of leaf pages.

    Args:
        pages: The file.
        leaves: Its leaf pages, in order.
        width: Number of columns of the table.
        wanted: Columns to decode.

    Returns:
        A column for each of `wanted`: Int64, or String, with null where the table has NULL (of text also where it
        is empty).

    Raises:
        UnusualPageError: A page is damaged, a row has fewer columns, or a value is of another kind.
    """
    rows = _find_rows(pages, leaves)
    last = max((want.position for want in wanted if want.position is not None), default=-1)
    positions = {want.position for want in wanted if want.position is not None}
    fields = _find_fields(rows, width, last, positions)
    columns = []
    for want in wanted:
        if want.position is None:
            columns.append(pl.Series(want.name, rows.row_ids))
            continue
        serials, starts = fields[want.position]
        if want.is_row_id:
            if serials.any():
                raise UnusualPageError
            columns.append(pl.Series(want.name, rows.row_ids))
        elif want.is_text:
            columns.append(_decode_text(want.name, rows.buffer, serials, starts))
        else:
            columns.append(_decode_integers(want.name, rows.buffer, serials, starts))
    return pl.DataFrame(columns)


def _find_rows(pages: Pages, leaves: Leaves) -> _Rows:
    """Find the rows of pages; their ids increase, within the bounds of their page."""
    buffer = read_pages(pages, leaves.pages)
    at, cells = find_cells(pages, buffer, is_leaf=True)
    if leaves.pages.size > 1 and (cells == 0).any():
        raise UnusualPageError
    sizes, ends = read_varints(buffer, at)
    row_ids, headers = read_varints(buffer, ends)
    most = pages.usable - 35
    local = sizes
    if sizes.size and (sizes.max() > most or sizes.min() < 1):
        if sizes.min() < 1:
            raise UnusualPageError
        least = (pages.usable - 12) * 32 // 255 - 23
        kept = least + (sizes - least) % (pages.usable - 4)
        local = np.where(sizes <= most, sizes, np.where(kept <= most, kept, least))
    page_ends = np.repeat(np.arange(cells.size) * pages.size + pages.usable, cells)
    is_bad = headers + local + 4 * (local < sizes) > page_ends
    is_bad |= (row_ids <= np.repeat(leaves.above, cells)) & (
        np.repeat(leaves.above, cells) != np.iinfo(np.int64).min
    )
    is_bad |= row_ids > np.repeat(leaves.last, cells)
    if is_bad.any() or (row_ids[1:] <= row_ids[:-1]).any():
        raise UnusualPageError
    return _Rows(buffer, row_ids, headers, sizes, local)


def _find_fields(rows: _Rows, width: int, last: int, positions: set[int]) -> _Fields:
    """Find the columns at `positions`, up to `last`, in each row."""
    if last < 0:
        return {}
    if rows.headers.size == 0:
        return {position: (np.zeros(0, np.int64), np.zeros(0, np.int64)) for position in positions}
    length = width + 1
    is_short = np.zeros(rows.headers.size, bool)
    matrix = np.zeros((length, 0), np.uint8)
    if length < _LONGEST_HEADER:
        chosen = np.flatnonzero((rows.buffer[rows.headers] == length) & (rows.local >= length))
        if chosen.size:
            found = _gather_headers(rows.buffer, rows.headers[chosen], length)
            plain = (found < 128).all(axis=1)
            if not plain.all():
                chosen, found = chosen[plain], found[plain]
            is_short[chosen] = True
            matrix = np.ascontiguousarray(found.T)
    if is_short.all():
        return _find_short(rows, matrix, last, positions)
    long = np.flatnonzero(~is_short)
    fields = _find_long(_take(rows, long), width, last, positions)
    if long.size == rows.headers.size:
        return fields
    short = np.flatnonzero(is_short)
    merged: _Fields = {}
    for position, (serials, starts) in _find_short(_take(rows, short), matrix, last, positions).items():
        both = np.empty((2, rows.headers.size), np.int64)
        both[0, short], both[1, short] = serials, starts
        both[0, long], both[1, long] = fields[position]
        merged[position] = both[0], both[1]
    return merged


def _take(rows: _Rows, chosen: Ints) -> _Rows:
    return _Rows(
        rows.buffer, rows.row_ids[chosen], rows.headers[chosen], rows.sizes[chosen], rows.local[chosen]
    )


def _gather_headers(buffer: Bytes, at: Ints, length: int) -> Bytes:
    """Gather headers of one length: a row for each."""
    found = view_words(buffer, f"V{length}")[at]
    return found.view(np.uint8).reshape(at.size, length)


def _find_short(rows: _Rows, matrix: Bytes, last: int, positions: set[int]) -> _Fields:
    """Find columns of rows whose header has a byte for each column."""
    if ((matrix[1 : last + 2] == 10) | (matrix[1 : last + 2] == 11)).any():
        raise UnusualPageError
    fields: _Fields = {}
    starts = rows.headers + matrix.shape[0]
    for position in range(matrix.shape[0] - 1):
        serials = matrix[position + 1]
        if position in positions:
            fields[position] = serials, starts
        if serials.any():
            starts = starts + _SHORT_SIZES[serials]
        if position == last and (starts > rows.headers + rows.local).any():
            raise UnusualPageError
    if (starts != rows.headers + rows.sizes).any():
        raise UnusualPageError
    return fields


def _find_long(rows: _Rows, width: int, last: int, positions: set[int]) -> _Fields:
    """Find columns of rows with any header."""
    lengths, at = read_varints(rows.buffer, rows.headers)
    if ((lengths > rows.local) | (lengths < width + 1)).any():
        raise UnusualPageError
    header_ends = rows.headers + lengths
    starts, fields = header_ends, _Fields()
    for position in range(width):
        if (at >= header_ends).any():
            raise UnusualPageError
        serials, at = read_varints(rows.buffer, at)
        # of nine bytes, a negative number
        if ((serials < 0) | (serials == 10) | (serials == 11) | (serials > 1 << 32)).any():
            raise UnusualPageError
        if position in positions:
            fields[position] = serials, starts
        starts = starts + np.where(
            serials < _FIRST_BLOB, _SIZES[np.minimum(serials, 11)], (serials - 12) >> 1
        )
        if position == last and (starts > rows.headers + rows.local).any():
            raise UnusualPageError
    if ((at != header_ends) | (starts != rows.headers + rows.sizes)).any():
        raise UnusualPageError
    return fields


def _decode_integers(name: str, buffer: Bytes, serials: Ints | Bytes, starts: Ints) -> pl.Series:
    """Decode integers of any width: the word that begins at the value, shifted."""
    if serials.size == 0:
        return pl.Series(name, [], dtype=pl.Int64)
    least, most = int(serials.min()), int(serials.max())
    if most > _ONE or (most >= _REAL and (serials == _REAL).any()):
        raise UnusualPageError
    if most == 0:
        return pl.Series(name, [None], dtype=pl.Int64).new_from_index(0, serials.size)
    if least >= _ZERO:
        return pl.Series(name, (serials == _ONE).astype(np.int64))
    words = view_words(buffer, ">i8")[starts].astype(np.int64)
    if least == most:
        return pl.Series(name, words >> np.int64(64 - 8 * int(_SIZES[most])))
    values = words >> np.minimum(64 - 8 * _SIZES, 63)[serials]
    if most >= _ZERO:
        values[serials >= _ZERO] = 0
        values[serials == _ONE] = 1
    series = pl.Series(name, values)
    return series if least else series.set(pl.Series(serials == 0), None)


def _decode_text(name: str, buffer: Bytes, serials: Ints | Bytes, starts: Ints) -> pl.Series:
    """Decode text or bytes; numbers are left to SQLite."""
    if serials.size == 0 or not serials.any():
        return pl.Series(name, [None], dtype=pl.String).new_from_index(0, serials.size)
    if ((serials < _FIRST_BLOB) & (serials != 0)).any():
        raise UnusualPageError
    wide = serials.astype(np.int64)
    lengths = np.maximum((wide - 12) >> 1, 0)
    present = np.flatnonzero(lengths)
    if present.size == 0:
        return pl.Series(name, [None], dtype=pl.String).new_from_index(0, serials.size)
    first, size = starts[present], lengths[present]
    total = int(size.sum())
    if 2 * total < buffer.size:  # a text holds all bytes that it was cut from
        ends = np.cumsum(size)
        buffer = buffer[expand_windows(first, first + size)]
        first = ends - size
    cut = pl.select(
        pl.lit(buffer.tobytes(), dtype=pl.Binary)
        .bin.slice(pl.lit(pl.Series(first)), pl.lit(pl.Series(size)))
        .alias(name)
    ).to_series()
    text = decode_text(cut)
    if present.size == serials.size:
        return text
    places = np.zeros(serials.size, np.int64)
    places[present] = np.arange(present.size)
    return text.gather(pl.Series(places)).set(pl.Series(lengths == 0), None)
