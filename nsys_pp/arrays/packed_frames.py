"""Packed frames: columns as planes of bytes, to be compressed.

The planes of a column are the lowest bytes of its values, then the second lowest ones, and so on: bytes of
equal meaning are together, and bytes that are 0 everywhere need nearly nothing once they are compressed. All
values have 64 bits, so a small file cannot make a large frame.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import gather
from nsys_pp.arrays.types import Bools, Int64s

_TEXTS = (pl.String, pl.Categorical, pl.Enum)


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


def unpack_frames(packed: Iterable[bytes], schema: pl.Schema) -> tuple[pl.DataFrame, list[int]]:
    """Unpack frames of one schema, one after the other; the inverse of `pack_frame`.

    Args:
        packed: Bytes of each frame; at least one.
        schema: Of all frames.

    Returns:
        The rows of all frames in one chunk, and the number of rows of each frame.

    Raises:
        ValueError: The bytes are damaged, or of another schema.
        PolarsError: A text is no category.
    """
    try:
        frames = [msgspec.msgpack.decode(data, type=_Frame) for data in packed]
    except msgspec.MsgspecError as error:
        raise ValueError("the description of a frame is damaged") from error
    expected = len(schema), _identify_schema(schema)
    if any((len(frame.columns), frame.schema_id) != expected for frame in frames):
        raise ValueError("a frame has another schema")
    sizes = [frame.rows for frame in frames]
    columns = [
        # of all frames at once: a column of polars takes as long to make as many of its rows
        _unpack_column([frame.columns[number] for frame in frames], sizes, name, dtype)
        for number, (name, dtype) in enumerate(schema.items())
    ]
    return pl.DataFrame(columns), sizes


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
    if column.dtype in _TEXTS:
        words = values.cast(pl.String)
        texts = words.unique().sort()
        return _Column(
            valid, _to_planes(words.cast(pl.Enum(texts)).to_physical().to_numpy()), texts.to_list()
        )
    return _Column(valid, _to_planes(values.to_numpy()))


def _unpack_column(columns: Sequence[_Column], sizes: Sequence[int], name: str, dtype: Any) -> pl.Series:
    texts: list[str] = []
    parts: list[tuple[Int64s, Bools, Int64s]] = []
    for column, rows in zip(columns, sizes, strict=True):
        own = _from_planes(column.planes)
        is_valid = _read_valid(column.valid, rows) if column.valid else np.ones(len(own), dtype=np.bool_)
        if len(is_valid) != rows or np.count_nonzero(is_valid) != len(own):
            raise ValueError("a column has another length than its frame")
        inner = _from_planes(column.inner)
        if isinstance(dtype, pl.List) and ((own < 0).any() or own.sum() != len(inner)):
            raise ValueError("lists have other lengths than their values")
        if column.texts is not None:
            if not ((own >= 0) & (own < len(column.texts))).all():
                raise ValueError("a text is missing")
            own = own + len(texts)
            texts += column.texts
        parts.append((own, is_valid, inner))
    words, is_valid, inner = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if isinstance(dtype, pl.List):
        choices, words = _build_lists(words, pl.Series(name, inner), dtype)
    elif dtype in _TEXTS:
        choices = pl.Series(name, texts, dtype=pl.String).cast(dtype)
    else:
        choices = None
    if len(words) < len(is_valid):
        filled = np.full(len(is_valid), -1)
        filled[is_valid] = words
        words = filled
    if choices is not None:
        return gather(choices, words)
    numbers = pl.Series(name, words.view(np.float64) if dtype == pl.Float64 else words).cast(
        dtype, wrap_numerical=True
    )
    return numbers if is_valid.all() else numbers.set(pl.Series(~is_valid), None)


def _read_valid(bits: bytes, rows: int) -> Bools:
    if len(bits) != -(-rows // 8):
        raise ValueError("a mask has another length than its frame")
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=rows).view(np.bool_)


def _build_lists(lengths: Int64s, values: pl.Series, dtype: pl.List) -> tuple[pl.Series, Int64s]:
    """Build the lists that have values, and an empty one, and the position of each list among these."""
    rows = pl.Series("row", np.repeat(np.arange(len(lengths)), lengths)).set_sorted()
    lists = pl.DataFrame([rows, values]).group_by("row", maintain_order=True).all()
    position = np.where(lengths > 0, np.cumsum(lengths > 0) - 1, len(lists))
    return pl.concat([lists[values.name], pl.Series(values.name, [[]], dtype=dtype)]), position


def _to_planes(values: npt.NDArray[Any]) -> bytes:
    words = values.view("<i8") if values.dtype.kind == "f" else values.astype("<i8")
    return words.view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_planes(planes: bytes) -> Int64s:
    if len(planes) % 8:
        raise ValueError("planes are cut")
    words = np.frombuffer(planes, dtype=np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(words).view("<i8").ravel().astype(np.int64, copy=False)
