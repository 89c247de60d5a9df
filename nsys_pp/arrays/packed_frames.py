"""Packed frames: columns as planes of bytes, after their description.

A column of integers is stored as its lowest bytes, then its second lowest bytes, and so on, up to the highest
byte that is not 0 everywhere: bytes of equal meaning are together. Before that, the values may be replaced by
smaller ones (`Method`). All arithmetic is modulo 2^64, so every method is exact for all values of 64 bits.

Many small frames are joined as arrays: a query of polars for each column of each would cost more than the
rest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.columns import clear_values, find_distinct, numbers
from nsys_pp.arrays.distributions import compute_moments

Values = NDArray[np.uint64]
Method = Literal["plain", "signed", "delta", "minus", "map"]
"""Stored values: plain: the values.

Signed: by magnitude, so that -1 is small. delta: differences to the value before.
minus: differences to another column. map: the value for each value of another column, which determines it."""

_MOST_KEYS = 1 << 12  # values of a column that may determine another one are below it
_SAMPLE_ROWS = 1 << 12  # rows by which methods are compared
_FIRST_ROWS = 64  # that refute keys
_ZERO, _SHIFT = np.uint64(0), np.uint64(1)
Mask = NDArray[np.bool_]
Measure = Callable[[bytes], int]
"""Size of bytes after compression."""


class PlaneCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Encoding of a column.

    Attributes:
        method: Replacement of the values.
        width: Number of planes.
        length: Stored values, thus bytes of a plane.
        other: Position of the column that "minus" and "map" refer to; -1 without one.
    """

    method: Method
    width: int
    length: int
    other: int = -1


def choose_planes(
    values: Values,
    *,
    measure: Measure,
    bases: Sequence[tuple[int, Values]] = (),
    keys: Iterable[tuple[int, Values]] = (),
) -> tuple[PlaneCode, bytes]:
    """Encode a column by the method whose planes are smallest.

    Args:
        values: The column.
        measure: Returns the size of planes after compression; compares methods on some rows.
        bases: Columns of the same length, with their positions, that the column may be close to.
        keys: Columns of the same length, with their positions, that may determine the column.

    Returns:
        The encoding and the planes, which are empty if all values are 0.
    """
    for position, key in keys:
        table = _find_map(values, key)
        if table is not None:
            width, planes = _to_planes(table)
            return PlaneCode("map", width, len(table), position), planes
    first = max(0, (len(values) - _SAMPLE_ROWS) // 2)
    sample = slice(first, first + _SAMPLE_ROWS)
    by_position = dict(bases)
    methods = list(_methods(values, bases))
    best, packed, least = methods[0], (0, b""), -1
    for method, other in methods if len(methods) > 1 else ():
        base = by_position[other][sample] if other >= 0 else None
        candidate = _to_planes(_replace(values[sample], method, base))
        size = measure(candidate[1])
        if least < 0 or size < least:
            best, packed, least = (method, other), candidate, size
    method, other = best
    if least < 0 or len(values) > _SAMPLE_ROWS:  # else the sample is all of the column
        packed = _to_planes(_replace(values, method, by_position.get(other)))
    width, planes = packed
    return PlaneCode(method, width, len(values), other), planes


def restore_planes(code: PlaneCode, planes: memoryview, other: Values | None = None) -> Values:
    """Decode a column.

    Args:
        code: Its encoding.
        planes: At least its planes.
        other: The column that `code.other` names.

    Raises:
        ValueError: The planes are too short, or the encoding contradicts the columns.
    """
    stored = _from_planes(planes, code.width, code.length)
    if code.method == "plain":
        return stored
    if code.method == "signed":
        return _from_magnitudes(stored)
    if code.method == "delta":
        return np.cumsum(_from_magnitudes(stored), dtype=np.uint64)
    if other is None:
        raise ValueError("an encoding lacks its other column")
    if code.method == "minus":
        if len(other) != len(stored):
            raise ValueError("two columns differ in length")
        return _from_magnitudes(stored) + other
    if len(other) and int(other.max()) >= len(stored):
        raise ValueError("a value is not in the table")
    return stored.take(other.view(np.int64))


def as_words(values: NDArray[Any]) -> Values:
    """View integers or booleans of any size as 64-bit words; floats by their bits."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64)
    return values.astype(np.uint64)


def size_of(code: PlaneCode) -> int:
    """Return the bytes of the planes of an encoding.

    Raises:
        ValueError: No column has such an encoding.
    """
    if not 0 <= code.width <= 8 or code.length < 0:
        raise ValueError("an encoding is invalid")
    return code.width * code.length


def _methods(values: Values, bases: Sequence[tuple[int, Values]]) -> Iterator[tuple[Method, int]]:
    """Yield the methods that may be best, with the position of their other column."""
    if not len(values) or not values.any():
        yield "plain", -1
        return
    yield "signed" if int(values.view(np.int64).min()) < 0 else "plain", -1
    yield "delta", -1
    for position, _ in bases:
        yield "minus", position


def _replace(values: Values, method: str, base: Values | None) -> Values:
    if method == "plain":
        return values
    if method == "signed":
        return _to_magnitudes(values)
    if method == "delta":
        differences = values.copy()
        np.subtract(values[1:], values[:-1], out=differences[1:])
        return _to_magnitudes(differences)
    assert base is not None
    return _to_magnitudes(values - base)


def _find_map(values: Values, key: Values) -> Values | None:
    """Return the value for each value of a key from 0 on; None if the key does not determine the values."""
    if not len(values) or int(key.max()) >= min(_MOST_KEYS, len(values)):
        return None
    table, positions = np.zeros(int(key.max()) + 1, dtype=np.uint64), key.view(np.int64)
    for rows in (slice(_FIRST_ROWS), slice(None)):  # few rows refute most keys
        table[positions[rows]] = values[rows]
        if not (table[positions[rows]] == values[rows]).all():
            return None
    return table


def _to_magnitudes(values: Values) -> Values:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    signs = (values.view(np.int64) >> np.int64(63)).view(np.uint64)
    return (values << _SHIFT) ^ signs


def _from_magnitudes(values: Values) -> Values:
    return (values >> _SHIFT) ^ (_ZERO - (values & _SHIFT))


def _to_planes(values: Values) -> tuple[int, bytes]:
    top = int(values.max(initial=0))
    width = -(-top.bit_length() // 8)
    words = values.astype("<u8", copy=False)
    return width, np.ascontiguousarray(words.view(np.uint8).reshape(-1, 8)[:, :width].T).tobytes()


def _from_planes(planes: memoryview, width: int, length: int) -> Values:
    if len(planes) < width * length:
        raise ValueError("planes are too short")
    if not width:
        return np.zeros(length, dtype=np.uint64)
    stored = np.frombuffer(planes, dtype=np.uint8, count=width * length)
    if width == 1:
        return stored.astype(np.uint64)
    stored = stored.reshape(width, length)
    words = np.zeros((length, 8), dtype=np.uint8)
    words[:, :width] = stored.T
    return words.view("<u8").reshape(-1).astype(np.uint64, copy=False)


TEXTS = (pl.String, pl.Categorical, pl.Enum)


class DecodedColumn(Struct, frozen=True, kw_only=True):
    """A column of one frame.

    Attributes:
        words: One per row, 0 for null: numbers by their bits, or positions in `texts`; of lists, all values.
        valid: Mask of the rows that are not null; None: all.
        texts: Of strings and categories.
        lengths: Of lists that are not null.
    """

    words: Values
    valid: Mask | None
    texts: list[str] | None = None
    lengths: Values | None = None

    @property
    def mask(self) -> Mask:
        """Mask of the rows that are not null."""
        rows = self.words if self.lengths is None else self.lengths
        return np.ones(len(rows), dtype=np.bool_) if self.valid is None else self.valid


def join_columns(pieces: Sequence[DecodedColumn], name: str, dtype: Any) -> pl.Series:
    """Concatenate the columns of frames of one schema as a series.

    Args:
        pieces: At least one.
        name: Of the series.
        dtype: As in `pack_frame`.
    """
    words = np.concatenate([piece.words for piece in pieces])
    has_nulls = any(piece.valid is not None for piece in pieces)
    valid = np.concatenate([piece.mask for piece in pieces])
    if isinstance(dtype, pl.List):
        lengths = np.concatenate([piece.lengths for piece in pieces if piece.lengths is not None])
        return _build_lists(name, dtype, valid, lengths.astype(np.int64), as_type(words, dtype.inner))
    if isinstance(dtype, TEXTS):
        return _build_texts(pieces, valid, name, dtype)
    values = pl.Series(name, as_type(words, dtype), dtype=dtype)
    return clear_values(values, ~valid) if has_nulls else values


def _build_texts(pieces: Sequence[DecodedColumn], valid: Mask, name: str, dtype: Any) -> pl.Series:
    """Build a column of texts: the distinct texts of all pieces, and of each row its position among these."""
    choices: dict[str, int] = {}
    positions, before, own = [], None, np.zeros(1, dtype=np.uint32)
    for piece in pieces:
        if piece.texts != before:  # neighbours mostly have the same
            before = piece.texts
            listed = [choices.setdefault(text, len(choices)) for text in before or ()]
            own = np.array([*listed, 0], dtype=np.uint32)  # nulls, where there is no text
        positions.append(own[piece.words.view(np.int64)])
    position = np.concatenate(positions)
    position[~valid] = len(choices)
    # indices of this type are used as they are; `gather` is a query
    return pl.Series(name, [*choices, None], dtype=pl.String).cast(dtype)[pl.Series(position)]


def _build_lists(
    name: str, dtype: pl.List, valid: Mask, lengths: NDArray[np.int64], values: NDArray[Any]
) -> pl.Series:
    row = np.repeat(np.flatnonzero(valid), lengths)
    filled = pl.DataFrame({"row": row, name: pl.Series(values, dtype=dtype.inner)})
    lists = filled.group_by(pl.col("row").set_sorted(), maintain_order=True).all()
    # two more choices: no values, and null
    choices = pl.concat([lists[name], pl.Series(name, [[], None], dtype=dtype)])
    positions = np.where(valid, len(lists), len(lists) + 1)
    positions[lists["row"].to_numpy()] = np.arange(len(lists))
    return choices.gather(positions)


def _number_texts(column: pl.Series) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts of a column, sorted, and the position of each row's text; -1 for null.

    Texts are sorted by their bytes in UTF-8, as Python sorts them by code points.
    """
    if column.dtype == pl.String:
        words, index = column.to_list(), np.arange(len(column))
    else:
        first, index = find_distinct(numbers(column, null=-1))
        words = column[pl.Series(first.astype(np.uint32))].to_list()
    texts = sorted({text for text in words if text is not None})
    position_of: dict[str | None, int] = {text: position for position, text in enumerate(texts)}
    return texts, np.array([position_of.get(text, -1) for text in words], dtype=np.int64)[index]


def as_type(words: Values, dtype: Any) -> NDArray[Any]:
    """Return the numbers of words: the inverse of `as_words`."""
    if dtype == pl.Float64:
        return words.view(np.float64)
    if dtype == pl.Boolean:
        flags: NDArray[Any] = words != 0
        return flags
    target = _array_type(dtype)
    numbers: NDArray[Any] = words.view(np.int64) if target.kind == "i" else words
    return numbers.astype(target, copy=False)


@cache
def _array_type(dtype: Any) -> np.dtype[Any]:
    target: np.dtype[Any] = pl.Series(dtype=dtype).to_numpy().dtype
    return target


FEW_VALUES = 1 << 16
"""Values that a column of any frame may have."""
LENGTH = struct.Struct("<I")
"""Of the description, at the begin of a frame."""


class ColumnCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Description of a column."""

    has_nulls: bool  # partly null: a mask precedes the planes
    code: PlaneCode | None  # of the values that are not null; None: all are null
    texts: list[str] | None = None  # of strings and categories
    inner: PlaneCode | None = None  # of the values of lists; `code` is that of their lengths


class FrameCode(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Description of a packed frame."""

    rows: int
    columns: list[ColumnCode]  # in the order of `order_columns`
    schema_id: int  # of `identify_schema`
    padding: int  # zeros at the end: no column has more values than the frame has bytes, or `FEW_VALUES`


def _read_code(packed: bytes, schema: pl.Schema) -> tuple[FrameCode, int]:
    """Read the description of a packed frame; return the position of its columns, too.

    Raises:
        ValueError: The frame has another schema, or more rows than a frame of its size has.
        struct.error: It has no description.
        MsgspecError: The description is damaged.
    """
    (size,) = LENGTH.unpack_from(packed)
    start = LENGTH.size + size
    code = msgspec.msgpack.decode(memoryview(packed)[LENGTH.size : start], type=FrameCode)
    if len(code.columns) != len(schema) or code.schema_id != identify_schema(schema):
        raise ValueError("a frame has another schema")
    lengths = [one.length for column in code.columns for one in (column.code, column.inner) if one]
    if code.rows < 0 or max(code.rows, *lengths, 0) > max(len(packed), FEW_VALUES):
        raise ValueError("a frame has more rows than bytes")
    return code, start


def identify_schema(schema: pl.Schema) -> int:
    """Hash the names and types of columns: a file has neither."""
    columns = [f"{name} {dtype.base_type().__name__}" for name, dtype in schema.items()]
    return zlib.crc32("\n".join(columns).encode())


def order_columns(schema: pl.Schema) -> list[int]:
    """Return the positions of the columns as they are stored.

    Lists are first, because moments follow from them.
    """
    types = schema.dtypes()
    return sorted(range(len(types)), key=lambda position: not isinstance(types[position], pl.List))


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

    def keys(self, count: int, valid: Mask | None) -> Iterator[tuple[int, Values]]:
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


def pack_frame(frame: pl.DataFrame, schema: pl.Schema, *, measure: Measure) -> bytes:
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
    earlier, columns, data = _Earlier({}, set(), {}, {}), [], []
    for position in order_columns(schema):
        column = frame.to_series(position)
        if isinstance(column.dtype, pl.List):
            code, pieces = _pack_lists(column, earlier, measure)
        elif len(column) and column.null_count() == len(column):
            code, pieces = ColumnCode(False, None), []
        else:
            code, pieces = _pack_column(column, schema.names(), position, earlier, measure)
        columns.append(code)
        data += pieces
    codes = [code for column in columns for code in (column.code, column.inner) if code]
    most = max([len(frame), *(code.length for code in codes)])
    padding = max(0, most - sum(map(len, data))) if most > FEW_VALUES else 0
    described = FrameCode(len(frame), columns, identify_schema(schema), padding)
    description = msgspec.msgpack.encode(described)
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
    try:
        code, start = _read_code(packed, schema)
    except (struct.error, msgspec.MsgspecError) as error:
        raise ValueError("the description of a frame is damaged") from error
    reader, earlier = _Reader(memoryview(packed), start), _Earlier({}, set(), {}, {})
    columns: dict[int, DecodedColumn] = {}
    names, types = schema.names(), schema.dtypes()
    for position, column in zip(order_columns(schema), code.columns, strict=True):
        if isinstance(types[position], pl.List):
            columns[position] = _decode_lists(column, names[position], code.rows, reader, earlier)
        else:
            columns[position] = _decode_column(column, names, position, code.rows, reader, earlier)
            if isinstance(types[position], TEXTS):
                _check_texts(columns[position], types[position])
    reader.read(code.padding)
    reader.end()
    return DecodedFrame(rows=code.rows, columns=[columns[position] for position in range(len(types))])


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


def _pack_column(
    column: pl.Series, names: list[str], position: int, earlier: _Earlier, measure: Measure
) -> tuple[ColumnCode, list[bytes]]:
    """Pack a column of numbers, or of texts as positions among them; not all of it is null."""
    texts = None
    valid = column.is_not_null().to_numpy() if column.null_count() else None
    if isinstance(column.dtype, TEXTS):
        texts, positions = _number_texts(column)
        words = as_words(_select(positions, valid))
    else:
        words = as_words((column if valid is None else column.drop_nulls()).to_numpy())
    bases = () if texts else earlier.bases(names, position)
    code, planes = choose_planes(
        words,
        measure=measure,
        bases=[(other, _select(values, valid)) for other, values in bases],
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


def _read_mask(column: ColumnCode, rows: int, reader: _Reader) -> Mask | None:
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
    if isinstance(dtype, pl.Enum) and not _list_categories(dtype).issuperset(texts):
        raise ValueError("a category has an unknown text")


@cache
def _list_categories(dtype: pl.Enum) -> frozenset[str]:
    """List the categories of a type, once."""
    return frozenset(dtype.categories)


def _pack_lists(column: pl.Series, earlier: _Earlier, measure: Measure) -> tuple[ColumnCode, list[bytes]]:
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
    earlier: _Earlier, position: int, words: Values, valid: Mask | None, *, is_text: bool
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


def _select(values: NDArray[Any], valid: Mask | None) -> NDArray[Any]:
    return values if valid is None else values[valid]
