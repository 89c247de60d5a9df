"""Columns of the rows of leaf pages, decoded for all rows at once.

A row is a header, with the storage class ("serial type") of each column, and the values one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.byte_rows import (
    ByteRows,
    FieldKind,
    FieldValues,
    number_slices,
    read_fields,
)
from nsys_pp.arrays.columns import gather
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.stored_texts import build_names
from nsys_pp.arrays.text_slices import cut_texts
from nsys_pp.read.sqlite_pages import (
    Bytes,
    Ints,
    Leaves,
    Pages,
    UnusualPageError,
    find_cells,
    read_pages,
    read_successive,
    read_varints,
    view_words,
)

# bytes of a value by serial type; 10 and 11 are reserved
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)
_SHORT_SIZES = np.concatenate([_SIZES, np.arange(128 - 12) // 2]).astype(np.uint8)
_WORDS = {1: ">i1", 2: ">i2", 3: ">i4", 4: ">i4", 6: ">i8", 8: ">i8"}  # that begin at a value, by its size
_REAL, _ZERO, _ONE, _FIRST_BLOB = 7, 8, 9, 12
_LONGEST_HEADER = 128  # of those decoded as a matrix: their length is one byte


class Wanted(Struct, frozen=True):
    """A column to decode."""

    name: str  # of the result
    position: int | None  # in the table; None: the row id
    is_row_id: bool  # an INTEGER PRIMARY KEY: stored as NULL, and means the row id
    is_text: bool
    bits: int = 64  # of integers of the result; more where values need more
    words: pl.DataType | None = (
        None  # `NAME` or `StoredName`, of a text that many rows have, where compiled functions decode it
    )


class StoredRows(Struct, frozen=True):
    """Rows of leaf pages."""

    buffer: Bytes
    row_ids: Ints
    headers: Ints  # position of each row's header, which is the start of its payload
    lengths: Ints  # bytes of the header
    codes: Ints  # position of its storage classes, behind its length
    sizes: Ints  # bytes of the whole payload
    local: Ints  # bytes of the payload in the page; the rest is in overflow pages


class _Field(Struct, frozen=True):
    """A column of rows."""

    serials: Ints | Bytes  # serial type of each value
    starts: Ints  # position of each value in the buffer, less `offset`
    offset: int


_Fields = dict[int, _Field]  # by position of the column


def decode_rows(pages: Pages, leaves: Leaves, width: int, wanted: list[Wanted]) -> pl.DataFrame:
    """Decode columns of all rows of leaf pages.

    Args:
        pages: The file.
        leaves: Its leaf pages, in order.
        width: Number of columns of the table.
        wanted: Columns to decode.

    Returns:
        A column for each of `wanted`: integers, or String or Categorical, with null where the table has NULL (of text
        also where it is empty).

    Raises:
        UnusualPageError: A page is damaged, a row has fewer columns, or a value is of another kind.
    """
    rows = _find_rows(pages, leaves)
    core = load_core()
    if core is not None and rows.headers.size and not (rows.lengths > rows.local).any():
        columns = decode_values(core, rows, width, wanted)
        if columns is not None:
            return pl.DataFrame(columns)
    return pl.DataFrame(_decode_in_numpy(rows, width, wanted))


def decode_values(
    core: Core, rows: StoredRows, width: int, wanted: Sequence[Wanted]
) -> list[pl.Series] | None:
    """Decode columns of rows, at least one, whose headers are in their pages.

    Args:
        core: The library.
        rows: The rows.
        width: Number of columns of the table.
        wanted: Columns to decode.

    Returns:
        As `decode_rows`; None if a header or a value is not of the usual form.
    """
    lengths = rows.lengths
    stored = [want for want in wanted if want.position is not None]
    stored.sort(key=lambda want: want.position or 0)
    kinds = [FieldKind(want.position or 0, 0 if want.is_text else want.bits) for want in stored]
    starts, kept, sizes = rows.headers + lengths, rows.local - lengths, rows.sizes - lengths
    found = read_fields(core, ByteRows(rows.buffer, rows.codes, starts, kept, sizes), width, kinds)
    if found is None:
        return None
    fields = {want.name: field for want, field in zip(stored, found, strict=True)}
    if any(want.is_row_id and fields[want.name].null_count < lengths.size for want in stored):
        return None
    columns = []
    for want in wanted:
        if want.position is None or want.is_row_id:
            columns.append(build_column(want.name, rows.row_ids))
            continue
        field = fields[want.name]
        if want.is_text:
            slices = (rows.buffer, field.values, field.others)
            columns.append(
                cut_texts(want.name, *slices)
                if want.words is None
                else _number_text(core, want.name, want.words, *slices)
            )
        else:
            columns.append(_mark_nulls(want.name, field))
    return columns


def _mark_nulls(name: str, field: FieldValues) -> pl.Series:
    count = len(field.values)
    if field.null_count == count:
        return pl.Series(name, [None], dtype=pl.Int64).new_from_index(0, count)
    series = build_column(name, field.values)
    return series.set(build_column("", field.others != 0), None) if field.null_count else series


def _decode_in_numpy(rows: StoredRows, width: int, wanted: list[Wanted]) -> list[pl.Series]:
    last = max((want.position for want in wanted if want.position is not None), default=-1)
    positions = {want.position for want in wanted if want.position is not None}
    fields = _find_fields(rows, width, last, positions)
    columns = []
    for want in wanted:
        if want.position is None:
            columns.append(pl.Series(want.name, rows.row_ids))
            continue
        field = fields[want.position]
        if want.is_row_id:
            if field.serials.any():
                raise UnusualPageError
            columns.append(pl.Series(want.name, rows.row_ids))
        elif want.is_text:
            starts = field.starts + field.offset
            columns.append(_decode_text(want.name, rows.buffer, field.serials, starts))
        else:
            columns.append(_decode_integers(want, rows.buffer, field))
    return columns


def _find_rows(pages: Pages, leaves: Leaves) -> StoredRows:
    """Find the rows of pages; their ids increase, within the bounds of their page."""
    buffer = read_pages(pages, leaves.pages)
    at, cells = find_cells(pages, buffer, is_leaf=True)
    if leaves.pages.size > 1 and (cells == 0).any():
        raise UnusualPageError
    (sizes, row_ids, lengths), (_, headers, codes) = read_successive(buffer, at, 3)
    most = pages.usable - 35
    local = sizes
    if sizes.size and (sizes.max() > most or sizes.min() < 1):
        if sizes.min() < 1:
            raise UnusualPageError
        least = (pages.usable - 12) * 32 // 255 - 23
        kept = least + (sizes - least) % (pages.usable - 4)
        local = np.where(sizes <= most, sizes, np.where(kept <= most, kept, least))
    page_ends = np.repeat(np.arange(cells.size) * pages.size + pages.usable, cells)
    overflow = 0 if local is sizes else 4 * (local < sizes)
    if (headers + local + overflow > page_ends).any() or (row_ids[1:] <= row_ids[:-1]).any():
        raise UnusualPageError
    if row_ids.size:  # the first and the last of a page bound the others
        stops = np.cumsum(cells)
        firsts, lasts = row_ids[stops - cells], row_ids[stops - 1]
        is_open = leaves.above == np.iinfo(np.int64).min
        if ((firsts <= leaves.above) & ~is_open).any() or (lasts > leaves.last).any():
            raise UnusualPageError
    return StoredRows(buffer, row_ids, headers, lengths, codes, sizes, local)


def _find_fields(rows: StoredRows, width: int, last: int, positions: set[int]) -> _Fields:
    """Find the columns at `positions`, up to `last`, in each row."""
    if last < 0:
        return {}
    if rows.headers.size == 0:
        return {position: _Field(np.zeros(0, np.int64), np.zeros(0, np.int64), 0) for position in positions}
    length = width + 1
    is_short = np.zeros(rows.headers.size, bool)
    matrix = np.zeros((length, 0), np.uint8)
    if length < _LONGEST_HEADER:
        chosen = np.flatnonzero((rows.buffer[rows.headers] == length) & (rows.local >= length))
        if chosen.size:
            found = np.ascontiguousarray(_gather_headers(rows.buffer, rows.headers[chosen], length).T)
            if found.max() >= 128:  # serial types of several bytes
                plain = found.max(axis=0) < 128
                chosen, found = chosen[plain], found[:, plain]
            if chosen.size == rows.headers.size:
                return _find_short(rows, found, last, positions)
            is_short[chosen] = True
            matrix = found
    long = np.flatnonzero(~is_short)
    fields = _find_long(_take(rows, long), width, last, positions)
    if long.size == rows.headers.size:
        return fields
    short = np.flatnonzero(is_short)
    merged: _Fields = {}
    for position, field in _find_short(_take(rows, short), matrix, last, positions).items():
        both = np.empty((2, rows.headers.size), np.int64)
        both[0, short], both[1, short] = field.serials, field.starts + field.offset
        both[0, long], both[1, long] = fields[position].serials, fields[position].starts
        merged[position] = _Field(both[0], both[1], 0)
    return merged


def _take(rows: StoredRows, chosen: Ints) -> StoredRows:
    columns = (rows.row_ids, rows.headers, rows.lengths, rows.codes, rows.sizes, rows.local)
    return StoredRows(rows.buffer, *(column[chosen] for column in columns))


def _gather_headers(buffer: Bytes, at: Ints, length: int) -> Bytes:
    """Gather headers of one length: a row for each."""
    found = view_words(buffer, f"V{length}")[at]
    return found.view(np.uint8).reshape(at.size, length)


def _find_short(rows: StoredRows, matrix: Bytes, last: int, positions: set[int]) -> _Fields:
    """Find columns of rows whose header has a byte for each column."""
    if (matrix[1 : last + 2] - np.uint8(10) < 2).any():  # 10 or 11
        raise UnusualPageError
    is_same = (matrix == matrix[:, :1]).all(axis=1).tolist()  # for all rows, as most are: no array is needed
    fields: _Fields = {}
    starts, offset = rows.headers, matrix.shape[0]
    for position in range(matrix.shape[0] - 1):
        serials = matrix[position + 1]
        if position in positions:
            fields[position] = _Field(serials, starts, offset)
        if is_same[position + 1]:
            offset += int(_SHORT_SIZES[serials[0]])
        else:
            starts = starts + _SHORT_SIZES[serials]
        is_cut = position == last and rows.local is not rows.sizes
        if is_cut and (starts + offset > rows.headers + rows.local).any():
            raise UnusualPageError
    if (starts + offset != rows.headers + rows.sizes).any():
        raise UnusualPageError
    return fields


def _find_long(rows: StoredRows, width: int, last: int, positions: set[int]) -> _Fields:
    """Find columns of rows with any header."""
    lengths, at = rows.lengths, rows.codes
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
            fields[position] = _Field(serials, starts, 0)
        starts = starts + np.where(
            serials < _FIRST_BLOB, _SIZES[np.minimum(serials, 11)], (serials - 12) >> 1
        )
        if position == last and (starts > rows.headers + rows.local).any():
            raise UnusualPageError
    if ((at != header_ends) | (starts != rows.headers + rows.sizes)).any():
        raise UnusualPageError
    return fields


def _decode_integers(want: Wanted, buffer: Bytes, field: _Field) -> pl.Series:
    """Decode integers of any width: the word that begins at the value, shifted."""
    name, serials = want.name, field.serials
    result = np.dtype(f"i{want.bits // 8}")
    if serials.size == 0:
        return pl.Series(name, [], dtype=pl.Int64)
    least, most = int(serials.min()), int(serials.max())
    if most > _ONE or (most >= _REAL and (serials == _REAL).any()):
        raise UnusualPageError
    if most == 0:
        return pl.Series(name, [None], dtype=pl.Int64).new_from_index(0, serials.size)
    if least >= _ZERO:
        return pl.Series(name, (serials == _ONE).astype(result))
    if least == most:
        size = int(_SIZES[most])
        words = view_words(buffer[field.offset :], _WORDS[size])[field.starts]
        values = words.astype(max(words.dtype.newbyteorder("="), result, key=lambda kind: kind.itemsize))
        return pl.Series(name, values >> (8 * (words.itemsize - size)) if size in (3, 6) else values)
    is_wide = bool(((serials > 4) & (serials < _ZERO)).any())
    kind, bits = (">i8", 64) if is_wide else (">i4", 32)
    values = view_words(buffer[field.offset :], kind)[field.starts].astype(f"i{bits // 8}")
    values >>= np.clip(bits - 8 * _SIZES, 0, bits - 1).astype(values.dtype)[serials]
    if most >= _ZERO:
        values[serials >= _ZERO] = 0
        values[serials == _ONE] = 1
    if result.itemsize > values.itemsize:
        values = values.astype(result)
    series = pl.Series(name, values)
    return series if least else series.set(pl.Series(serials == 0), None)


def _decode_text(name: str, buffer: Bytes, serials: Ints | Bytes, starts: Ints) -> pl.Series:
    """Decode text or bytes; numbers are left to SQLite."""
    if serials.size == 0 or not serials.any():
        return pl.Series(name, [None], dtype=pl.String).new_from_index(0, serials.size)
    if ((serials < _FIRST_BLOB) & (serials != 0)).any():
        raise UnusualPageError
    wide = serials.astype(np.int64)
    return cut_texts(name, buffer, starts, np.maximum((wide - 12) >> 1, 0))


def _number_text(
    core: Core, name: str, dtype: pl.DataType, buffer: Bytes, starts: Ints, lengths: Ints
) -> pl.Series:
    """Cut texts as `cut_texts`, as names: each different one once."""
    first, number = number_slices(core, buffer, starts, lengths)
    if not first.size:
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, lengths.size)
    words = build_names(cut_texts(name, buffer, starts[first], lengths[first]), dtype)
    return gather(words, number.astype(np.int64) - 1)
