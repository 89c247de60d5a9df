"""Packed frames: columns as planes of bytes, to be compressed.

The planes of a column are the lowest bytes of its values, then the second lowest ones, and so on: bytes of
equal meaning are together, and bytes that are 0 everywhere need nearly nothing once they are compressed. All
values have 64 bits, so a small file cannot make a large frame.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import clear_values
from nsys_pp.arrays.types import Bools, Int64s


class _Column(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    valid: bytes  # bits of the rows that are not null; empty: all
    planes: bytes  # of their values: numbers by their bits, positions in `texts`, or lengths of lists
    texts: list[str] | None = None  # of strings and categories
    inner: bytes = b""  # planes of the values of all lists


class _Frame(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    rows: int
    schema_id: int  # of `_identify_schema`
    columns: list[_Column]


def pack_frame(frame: pl.DataFrame, schema: pl.Schema) -> bytes:
    """Pack a frame.

    Args:
        frame: It has `schema`.
        schema: Integers, Float64, Boolean, String, Categorical, Enum, and lists of integers without nulls.

    Returns:
        Bytes to be compressed.
    """
    columns = [_pack_column(column) for column in frame]
    return msgspec.msgpack.encode(_Frame(len(frame), _identify_schema(schema), columns))


def unpack_frame(packed: bytes, schema: pl.Schema) -> pl.DataFrame:
    """Unpack a frame; the inverse of `pack_frame`.

    Raises:
        ValueError: The bytes are damaged, or of another schema.
        PolarsError: A text is missing, or is no category.
    """
    try:
        frame = msgspec.msgpack.decode(packed, type=_Frame)
    except msgspec.MsgspecError as error:
        raise ValueError("the description of a frame is damaged") from error
    if len(frame.columns) != len(schema) or frame.schema_id != _identify_schema(schema):
        raise ValueError("a frame has another schema")
    return pl.DataFrame(
        [
            _unpack_column(column, frame.rows, name, dtype)
            for column, (name, dtype) in zip(frame.columns, schema.items(), strict=True)
        ]
    )


def _identify_schema(schema: pl.Schema) -> int:
    """Hash the names and types of columns: a file has neither."""
    columns = [f"{name} {dtype.base_type().__name__}" for name, dtype in schema.items()]
    return zlib.crc32("\n".join(columns).encode())


def _pack_column(column: pl.Series) -> _Column:
    has_nulls = column.null_count() > 0
    valid = np.packbits(column.is_not_null().to_numpy()).tobytes() if has_nulls else b""
    values = column.drop_nulls() if has_nulls else column
    if isinstance(column.dtype, pl.List):
        lengths, inner = values.list.len(), values.explode(empty_as_null=False)
        return _Column(valid, _to_planes(lengths.to_numpy()), inner=_to_planes(inner.to_numpy()))
    if isinstance(column.dtype, (pl.String, pl.Categorical, pl.Enum)):
        words = values.cast(pl.String)
        texts = words.unique().sort()
        return _Column(
            valid, _to_planes(words.cast(pl.Enum(texts)).to_physical().to_numpy()), texts.to_list()
        )
    return _Column(valid, _to_planes(values.to_numpy()))


def _unpack_column(column: _Column, rows: int, name: str, dtype: Any) -> pl.Series:
    valid = _read_valid(column.valid, rows)
    words = _from_planes(column.planes)
    if len(words) != (rows if valid is None else np.count_nonzero(valid)):
        raise ValueError("a column has another length than its frame")
    if isinstance(dtype, pl.List):
        choices, words = _build_lists(words, pl.Series(name, _from_planes(column.inner)), dtype)
    elif column.texts is not None:
        choices = pl.Series(name, [*column.texts, None], dtype=pl.String).cast(dtype)
    else:
        choices = None
    if valid is not None:
        filled = np.full(rows, 0 if choices is None else len(choices) - 1)
        filled[valid] = words
        words = filled
    if choices is not None:
        return choices[pl.Series(words)]
    numbers = pl.Series(name, words.view(np.float64) if dtype == pl.Float64 else words)
    numbers = numbers.cast(dtype, wrap_numerical=True)
    return numbers if valid is None else clear_values(numbers, ~valid)


def _read_valid(bits: bytes, rows: int) -> Bools | None:
    """Return the mask of the rows that are not null; None: all."""
    if not bits:
        return None
    if len(bits) != -(-rows // 8):
        raise ValueError("a mask has another length than its frame")
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=rows).view(np.bool_)


def _build_lists(lengths: Int64s, values: pl.Series, dtype: pl.List) -> tuple[pl.Series, Int64s]:
    """Build the lists that have values, an empty one and null, and the position of each list among these."""
    if not 0 <= lengths.min(initial=0) <= lengths.max(initial=0) <= len(values) == lengths.sum():
        raise ValueError("lists have other lengths than their values")
    rows = pl.Series("row", np.repeat(np.arange(len(lengths)), lengths)).set_sorted()
    lists = pl.DataFrame([rows, values]).group_by("row", maintain_order=True).all()
    position = np.where(lengths > 0, np.cumsum(lengths > 0) - 1, len(lists))
    return pl.concat([lists[values.name], pl.Series(values.name, [[], None], dtype=dtype)]), position


def _to_planes(values: npt.NDArray[Any]) -> bytes:
    words = values.view("<i8") if values.dtype.kind == "f" else values.astype("<i8")
    return words.view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_planes(planes: bytes) -> Int64s:
    if len(planes) % 8:
        raise ValueError("planes are cut")
    words = np.frombuffer(planes, dtype=np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(words).view("<i8").ravel().astype(np.int64, copy=False)
