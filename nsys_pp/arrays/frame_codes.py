"""Descriptions of packed frames (`nsys_pp.arrays.packed_frames`), which precede their columns."""

from __future__ import annotations

import struct
import zlib

import msgspec
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.byte_planes import PlaneCode
from nsys_pp.arrays.packed_columns import TEXTS

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
