"""Packed frames: columns as planes of bytes, each near an earlier column if that is shorter, after their description.

Many small frames are joined as arrays: a query of polars for each column of each would cost more than the rest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.byte_planes import PlaneCode, Values, as_words, choose_planes, restore_planes, size_of
from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.distributions import compute_moments

TEXTS = (pl.String, pl.Categorical, pl.Enum)
_FEW_ROWS = 64  # up to this number, a list is faster than a gather
Mask = NDArray[np.bool_]


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


def list_empty(types: Sequence[Any]) -> list[DecodedColumn]:
    """List columns without rows, one for each type."""
    nothing = np.empty(0, dtype=np.uint64)
    return [
        DecodedColumn(
            words=nothing,
            valid=None,
            texts=[] if isinstance(dtype, TEXTS) else None,
            lengths=nothing if isinstance(dtype, pl.List) else None,
        )
        for dtype in types
    ]


def join_columns(pieces: Sequence[DecodedColumn], name: str, dtype: Any) -> pl.Series:
    """Concatenate the columns of frames of one schema as a series.

    Args:
        pieces: At least one.
        name: Of the series.
        dtype: As in `pack_frame`.
    """
    words = np.concatenate([piece.words for piece in pieces])
    if isinstance(dtype, pl.List):
        lengths = np.concatenate([_lengths_of(piece) for piece in pieces]).astype(np.int64)
        masks = [
            np.ones(len(_lengths_of(piece)), dtype=np.bool_) if piece.valid is None else piece.valid
            for piece in pieces
        ]
        return _build_lists(name, dtype, np.concatenate(masks), lengths, as_type(words, dtype.inner))
    valid = None
    if any(piece.valid is not None for piece in pieces):
        valid = np.concatenate(
            [
                np.ones(len(piece.words), dtype=np.bool_) if piece.valid is None else piece.valid
                for piece in pieces
            ]
        )
    if isinstance(dtype, TEXTS):
        texts, sizes = [piece.texts or [] for piece in pieces], [len(piece.words) for piece in pieces]
        return build_texts(words, texts, sizes, valid, name, dtype)
    values = pl.Series(name, as_type(words, dtype), dtype=dtype)
    return values if valid is None else values.set(pl.Series(~valid), None)


def _lengths_of(piece: DecodedColumn) -> Values:
    assert piece.lengths is not None
    return piece.lengths


def build_texts(
    words: Values, texts: Sequence[list[str]], sizes: Sequence[int], valid: Mask | None, name: str, dtype: Any
) -> pl.Series:
    """Build a column of texts.

    Args:
        words: Positions in the texts.
        texts: Of each piece of the column.
        sizes: Rows of each piece.
        valid: As in `DecodedColumn`.
        name: Of the series.
        dtype: Its type.
    """
    choices: dict[str, int] = {}
    positions = np.empty(len(words), dtype=np.uint32)
    used = [own for own, size in zip(texts, sizes, strict=True) if size and own]
    if all(own == used[0] for own in used[1:]):  # as in most runs
        choices = {text: position for position, text in enumerate(used[0])} if used else {}
        positions[:] = words
    else:
        at, before = 0, None
        for own_texts, size in zip(texts, sizes, strict=True):
            if own_texts != before:  # neighbours mostly have the same
                own = np.array(
                    [choices.setdefault(text, len(choices)) for text in own_texts], dtype=np.uint32
                )
                before = own_texts
            if own_texts:
                positions[at : at + size] = own[words[at : at + size].astype(np.int64)]
            at += size
    if valid is not None:
        positions[~valid] = len(choices)
    if len(words) <= _FEW_ROWS:
        listed: list[str | None] = [*choices, None]
        return pl.Series(name, [listed[position] for position in positions.tolist()], dtype=pl.String).cast(
            dtype
        )
    # indices of this type are used as they are; `gather` is a query
    return pl.Series(name, [*choices, None], dtype=pl.String).cast(dtype)[pl.Series(positions)]


def _build_lists(
    name: str, dtype: pl.List, valid: Mask, lengths: NDArray[np.int64], values: NDArray[Any]
) -> pl.Series:
    row = np.repeat(np.flatnonzero(valid), lengths)
    filled = pl.DataFrame({"row": row, name: pl.Series(values, dtype=dtype.inner)})
    lists = filled.group_by(pl.col("row").set_sorted(), maintain_order=True).all()
    if len(lists) == len(valid):
        return lists[name]
    # two more choices: no values, and null
    choices = pl.concat([lists[name], pl.Series(name, [[], None], dtype=dtype)])
    positions = np.where(valid, len(lists), len(lists) + 1)
    positions[lists["row"].to_numpy()] = np.arange(len(lists))
    return choices.gather(positions)


def split_values(column: pl.Series) -> tuple[NDArray[Any], Mask | None]:
    """Return the values of a column of numbers or booleans that are not null, and the mask of their rows; None: all."""
    if not column.null_count():
        return column.to_numpy(), None
    if column.dtype in (pl.Float64, pl.UInt64):
        return column.drop_nulls().to_numpy(), column.is_not_null().to_numpy()
    valid = ~np.isnan(column.cast(pl.Int64).to_numpy())  # of numbers with nulls, floats
    return numbers(column)[valid], valid


def number_texts(
    column: pl.Series, codes: pl.Series | None
) -> tuple[list[str], NDArray[np.int64], Mask | None]:
    """Return the distinct texts of a column, sorted, the position of each text that is not null, and the mask of their rows.

    Texts are sorted by their bytes in UTF-8, as Python sorts them by code points.

    Args:
        column: The column.
        codes: Physical values of categories; None: of strings.
    """
    if codes is None:
        listed = column.to_list()
        texts = sorted({text for text in listed if text is not None})
        position_of: dict[str | None, int] = {text: position for position, text in enumerate(texts)}
        positions = np.array([position_of.get(text, -1) for text in listed], dtype=np.int64)
    else:
        code = numbers(codes, null=-1)
        first, index = find_distinct(code)
        if isinstance(column.dtype, pl.Enum):
            words = [None if at < 0 else list_words(column.dtype)[at] for at in code[first].tolist()]
        else:
            words = column[pl.Series(first.astype(np.uint32))].to_list()
        texts = sorted(text for text in words if text is not None)
        position_of = {text: position for position, text in enumerate(texts)}
        positions = np.array([position_of.get(text, -1) for text in words], dtype=np.int64)[index]
    if not column.null_count():
        return texts, positions, None
    return texts, positions[positions >= 0], positions >= 0


@cache
def list_words(dtype: pl.Enum) -> list[str]:
    """List the categories of a type in order, once."""
    return dtype.categories.to_list()


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


class Layout(Struct, frozen=True, kw_only=True):
    """Facts of a schema for decoding, kept between frames."""

    schema: pl.Schema
    schema_id: int
    order: list[int]  # of `order_columns`
    types: list[pl.DataType]
    names: list[str]
    lists: list[bool]  # whether each column is one of lists
    texts: list[bool]  # the same, of texts


class _Layouts:
    """Layouts by identity of the schema, which the layout keeps alive."""

    _MOST = 1_000

    def __init__(self) -> None:
        self._layouts: dict[int, Layout] = {}

    def find(self, schema: pl.Schema) -> Layout:
        """Return the layout of a schema."""
        layout = self._layouts.get(id(schema))
        if layout is None:
            if len(self._layouts) >= self._MOST:
                self._layouts.clear()
            layout = self._layouts[id(schema)] = Layout(
                schema=schema,
                schema_id=identify_schema(schema),
                order=order_columns(schema),
                types=schema.dtypes(),
                names=schema.names(),
                lists=[isinstance(dtype, pl.List) for dtype in schema.dtypes()],
                texts=[isinstance(dtype, TEXTS) for dtype in schema.dtypes()],
            )
        return layout


LAYOUTS = _Layouts()


def read_code(packed: bytes, layout: Layout) -> tuple[FrameCode, int]:
    """Read the description of a packed frame; return the position of its columns, too.

    Raises:
        ValueError: The frame has another schema, or more rows than a frame of its size has.
        struct.error: It has no description.
        MsgspecError: The description is damaged.
    """
    (size,) = LENGTH.unpack_from(packed)
    start = LENGTH.size + size
    code = msgspec.msgpack.decode(memoryview(packed)[LENGTH.size : start], type=FrameCode)
    if len(code.columns) != len(layout.types) or code.schema_id != layout.schema_id:
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
    """Return the positions of the columns as they are stored: lists first, because moments follow from them."""
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
