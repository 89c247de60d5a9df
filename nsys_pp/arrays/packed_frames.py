"""Frames as bytes that compress well, and back: the frames of parts.

A column is stored as integers (`nsys_pp.arrays.byte_planes`): numbers by their bits, strings and categories by their positions
in the list of the column's texts, lists by their lengths and all their values. Nulls are a mask; a column without values has
only its number of rows. Columns may be stored as differences to columns before them, and the moments of distributions
as differences to those that their values have, which are 0 unless values were rounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.byte_planes import Values, as_words, choose_planes, restore_planes, size_of
from nsys_pp.arrays.distributions import compute_moments
from nsys_pp.arrays.frame_codes import (
    FEW_VALUES,
    LAYOUTS,
    LENGTH,
    ColumnCode,
    FrameCode,
    Layout,
    read_code,
)
from nsys_pp.arrays.packed_columns import (
    DecodedColumn,
    as_type,
    join_columns,
    list_empty,
    number_texts,
    split_values,
)

_MOST_BASES = 6
_VALUES, _COUNTS = "values", "value_counts"  # columns of a distribution


class _Earlier(Struct):
    """Columns that are stored already, with 0 for null, by their positions in the schema; and moments."""

    words: dict[int, Values]
    texts: set[int]
    moments: dict[str, Values]
    most: dict[int, int]  # greatest value of each column, where it is a key at all

    def bases(self, names: list[str], position: int) -> Iterator[tuple[int, Values]]:
        """Yield columns that this one may be close to: its moment, and times for times."""
        name = names[position]
        if name in self.moments:
            yield len(names) + position, self.moments[name]
        if _is_time(name):
            near = [other for other in self.words if other not in self.texts and _is_time(names[other])]
            for other in near[-_MOST_BASES:]:
                yield other, self.words[other]

    def keys(self, count: int, valid: NDArray[np.bool_] | None) -> Iterator[tuple[int, Values]]:
        """Yield columns that may determine this one, with `count` values."""
        for other, values in self.words.items():
            if other not in self.most:
                self.most[other] = int(values.max(initial=0))
            if valid is not None or self.most[other] < count:
                yield other, _select(values, valid)

    def find(self, names: list[str], other: int) -> Values | None:
        """Return the column that an encoding refers to, by the names of all columns."""
        if len(names) <= other < 2 * len(names):
            return self.moments.get(names[other - len(names)])
        return self.words.get(other)


def pack_frame(frame: pl.DataFrame, schema: pl.Schema, *, measure: Callable[[bytes], int]) -> bytes:
    """Pack a frame.

    Args:
        frame: It has `schema`.
        schema: Integers, Float64, Boolean, String, Categorical, Enum, and lists of integers without nulls.
        measure: Returns the size of some bytes after compression.

    Returns:
        Bytes to be compressed.

    Raises:
        ValueError: A list contains null.
    """
    layout = LAYOUTS.find(schema)
    earlier, columns, data = _Earlier({}, set(), {}, {}), [], []
    codes_of = _list_codes(frame, layout)
    for position in layout.order:
        column = frame.to_series(position)
        if layout.lists[position]:
            code, pieces = _pack_lists(column, earlier, measure)
        elif len(column) and column.null_count() == len(column):
            code, pieces = ColumnCode(False, None), []
        else:
            texts = None
            if layout.texts[position]:
                texts, kept, valid = number_texts(column, codes_of.get(layout.names[position]))
            else:
                kept, valid = split_values(column)
            code, pieces = _pack_column((texts, kept, valid), layout.names, position, earlier, measure)
        columns.append(code)
        data += pieces
    codes = [code for column in columns for code in (column.code, column.inner) if code]
    most = max([len(frame), *(code.length for code in codes)])
    padding = max(0, most - sum(map(len, data))) if most > FEW_VALUES else 0
    description = msgspec.msgpack.encode(FrameCode(len(frame), columns, layout.schema_id, padding))
    return b"".join([LENGTH.pack(len(description)), description, *data, bytes(padding)])


class DecodedFrame(Struct, frozen=True, kw_only=True):
    """A frame whose columns are arrays."""

    rows: int
    columns: list[DecodedColumn]  # in the order of the schema

    def list_values(self, schema: pl.Schema) -> dict[str, list[Any]]:
        """List the values of each column, of few rows: faster than a frame.

        Raises:
            ValueError: A value is null.
        """
        listed = {}
        for column, (name, dtype) in zip(self.columns, schema.items(), strict=True):
            if column.valid is not None and not column.valid.all():
                raise ValueError(f"a value of `{name}` is null")
            if column.texts is not None:
                listed[name] = [column.texts[position] for position in column.words.tolist()]
            else:
                listed[name] = as_type(column.words, dtype).tolist()
        return listed


def unpack_frame(packed: bytes, schema: pl.Schema) -> pl.DataFrame:
    """Unpack a frame; the inverse of `pack_frame`.

    Raises:
        ValueError: The bytes are damaged, or of another schema.
    """
    return join_frames([decode_frame(packed, schema)], schema)


def join_frames(frames: Sequence[DecodedFrame], schema: pl.Schema) -> pl.DataFrame:
    """Concatenate frames of one schema; without any, the frame is empty."""
    if not any(frame.rows for frame in frames):
        return schema.to_frame()
    return pl.DataFrame(
        [
            join_columns([frame.columns[position] for frame in frames], name, dtype)
            for position, (name, dtype) in enumerate(schema.items())
        ]
    )


def decode_frame(packed: bytes, schema: pl.Schema) -> DecodedFrame:
    """Decode a packed frame into arrays.

    Raises:
        ValueError: The bytes are damaged, or of another schema.
    """
    data, layout = memoryview(packed), LAYOUTS.find(schema)
    try:
        code, start = read_code(packed, layout)
    except (struct.error, msgspec.MsgspecError) as error:
        raise ValueError("the description of a frame is damaged") from error
    if is_empty(packed, code, start, layout):
        return DecodedFrame(rows=0, columns=list_empty(layout.types))
    reader = _Reader(data, start)
    earlier = _Earlier({}, set(), {}, {})
    columns: dict[int, DecodedColumn] = {}
    for position, column in zip(layout.order, code.columns, strict=True):
        if layout.lists[position]:
            columns[position] = _decode_lists(column, layout.names[position], code.rows, reader, earlier)
        else:
            columns[position] = _decode_column(column, layout.names, position, code.rows, reader, earlier)
            if layout.texts[position]:
                _check_texts(columns[position], layout.types[position])
    reader.read(code.padding)
    reader.end()
    return DecodedFrame(rows=code.rows, columns=[columns[position] for position in range(len(layout.types))])


def is_empty(packed: bytes, code: FrameCode, start: int, layout: Layout) -> bool:
    """Return whether a packed frame has no row and is not damaged; most frames of reports without a training have none.

    Args:
        packed: The frame.
        code: Its description.
        start: Position of its columns.
        layout: Of its schema.
    """
    if code.rows or code.padding or len(packed) != start:
        return False
    return all(
        column.code is not None
        and not column.code.length
        and layout.lists[position] == (column.inner is not None)
        and (column.inner is None or not column.inner.length)
        for position, column in zip(layout.order, code.columns, strict=True)
    )


class _Reader:
    """Bytes that are read one piece after the other."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at

    def read(self, size: int) -> memoryview:
        """Return the next bytes.

        Raises:
            ValueError: There are too few.
        """
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("a frame is cut")
        self._at += size
        return self._data[self._at - size : self._at]

    def end(self) -> None:
        """Check that all bytes are read."""
        if self._at != len(self._data):
            raise ValueError("a frame has more bytes than columns")


def _is_time(name: str) -> bool:
    return name.endswith("_ns")


def _list_codes(frame: pl.DataFrame, layout: Layout) -> dict[str, pl.Series]:
    """List the codes of the columns of categories; one query for all."""
    categories = [
        name
        for name, dtype in zip(layout.names, layout.types, strict=True)
        if dtype in (pl.Categorical, pl.Enum)
    ]
    if not categories or frame.is_empty():
        return {name: frame[name].cast(pl.String).cast(pl.UInt32) for name in categories}
    codes = frame.select(pl.col(categories).to_physical())
    return dict(zip(categories, codes.get_columns(), strict=True))


def _pack_column(
    numbered: tuple[list[str] | None, NDArray[Any], NDArray[np.bool_] | None],
    names: list[str],
    position: int,
    earlier: _Earlier,
    measure: Callable[[bytes], int],
) -> tuple[ColumnCode, list[bytes]]:
    """Pack a column of numbers, or of positions in texts; with values other than null, and the mask of their rows."""
    texts, kept, valid = numbered
    words = as_words(kept)
    code, planes = choose_planes(
        words,
        measure=measure,
        bases=[
            (other, _select(values, valid))
            for other, values in (() if texts else earlier.bases(names, position))
        ],
        keys=earlier.keys(len(words), valid),
    )
    _remember(earlier, position, words, valid, is_text=texts is not None)
    mask = [] if valid is None else [np.packbits(valid).tobytes()]
    return ColumnCode(valid is not None, code, texts), [*mask, planes]


def _decode_column(
    column: ColumnCode, names: list[str], position: int, rows: int, reader: _Reader, earlier: _Earlier
) -> DecodedColumn:
    if column.code is None:
        nothing = np.zeros(rows, dtype=np.uint64)
        return DecodedColumn(words=nothing, valid=nothing.astype(np.bool_), texts=column.texts)
    valid = _read_mask(column, rows, reader)
    other = earlier.find(names, column.code.other)
    words = restore_planes(
        column.code, reader.read(size_of(column.code)), None if other is None else _select(other, valid)
    )
    if len(words) != (rows if valid is None else int(valid.sum())):
        raise ValueError("a column has another length than its frame")
    full = _remember(earlier, position, words, valid, is_text=column.texts is not None)
    return DecodedColumn(words=full, valid=valid, texts=column.texts)


def _read_mask(column: ColumnCode, rows: int, reader: _Reader) -> NDArray[np.bool_] | None:
    if not column.has_nulls:
        return None
    mask = np.frombuffer(reader.read(-(-rows // 8)), dtype=np.uint8)
    return np.unpackbits(mask, count=rows).view(np.bool_)


def _check_texts(column: DecodedColumn, dtype: Any) -> None:
    """Check that all texts of a column of texts are there, and are categories of an `Enum`."""
    texts = column.texts or []
    has_rows = len(column.words) and (column.valid is None or column.valid.any())
    if has_rows and int(column.words.max()) >= len(texts):
        raise ValueError("a text is missing")
    if isinstance(dtype, pl.Enum) and not list_categories(dtype).issuperset(texts):
        raise ValueError("a category has an unknown text")


@cache
def list_categories(dtype: pl.Enum) -> frozenset[str]:
    """List the categories of a type, once."""
    return frozenset(dtype.categories)


def _pack_lists(
    column: pl.Series, earlier: _Earlier, measure: Callable[[bytes], int]
) -> tuple[ColumnCode, list[bytes]]:
    flat = column.explode(empty_as_null=False, keep_nulls=False)
    if flat.null_count():
        raise ValueError(f"a list of `{column.name}` contains null")
    nulls = column.null_count()
    valid = column.is_not_null().to_numpy() if nulls else None
    kept = column.drop_nulls() if nulls else column
    lengths = as_words(kept.list.len().to_numpy())
    words = as_words(flat.to_numpy())
    lengths_code, lengths_planes = choose_planes(lengths, measure=measure)
    inner, planes = choose_planes(words, measure=measure)
    if valid is None:
        _remember_moments(earlier, column.name, lengths, words)
    mask = [] if valid is None else [np.packbits(valid).tobytes()]
    return ColumnCode(valid is not None, lengths_code, None, inner), [*mask, lengths_planes, planes]


def _decode_lists(
    column: ColumnCode, name: str, rows: int, reader: _Reader, earlier: _Earlier
) -> DecodedColumn:
    if rows and column.code is None:
        nothing = np.empty(0, dtype=np.uint64)
        return DecodedColumn(words=nothing, valid=np.zeros(rows, dtype=np.bool_), lengths=nothing)
    if column.code is None or column.inner is None:
        raise ValueError("a column of lists lacks its lengths or values")
    valid = _read_mask(column, rows, reader)
    lengths = restore_planes(column.code, reader.read(size_of(column.code)))
    words = restore_planes(column.inner, reader.read(size_of(column.inner)))
    is_right = len(lengths) == (rows if valid is None else int(valid.sum()))
    if not is_right or int(lengths.max(initial=0)) > len(words) or int(lengths.sum()) != len(words):
        raise ValueError("lists have other lengths than their values")
    if valid is None:
        _remember_moments(earlier, name, lengths, words)
    return DecodedColumn(words=words, valid=valid, lengths=lengths)


def _remember_moments(earlier: _Earlier, name: str, lengths: Values, words: Values) -> None:
    """Keep the values of a distribution; with its counts, their moments are earlier."""
    if name == _VALUES:
        earlier.moments = {_VALUES: words}
    elif name == _COUNTS and _VALUES in earlier.moments and len(lengths):
        if len(earlier.moments[_VALUES]) != len(words):
            return
        row = np.repeat(np.arange(len(lengths)), lengths.astype(np.int64))
        moments = compute_moments(
            row, earlier.moments[_VALUES].view(np.int64), words.view(np.int64), len(lengths)
        )
        earlier.moments = {moment: as_words(values) for moment, values in moments.items()}


def _remember(
    earlier: _Earlier, position: int, words: Values, valid: NDArray[np.bool_] | None, *, is_text: bool
) -> Values:
    """Keep a column for those after it; return it with 0 for null."""
    full = words
    if valid is not None:
        full = np.zeros(len(valid), dtype=np.uint64)
        full[valid] = words
    earlier.words[position] = full
    if is_text:
        earlier.texts.add(position)
    return full


def _select(values: Values, valid: NDArray[np.bool_] | None) -> Values:
    return values if valid is None else values[valid]
