"""Frames of many rows whose columns are in a scratch: moved there, or built block by block.

A column of words or with nulls is in a scratch as its codes or values; the bits of its nulls, of booleans and texts stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import polars as pl

from nsys_pp.arrays.scratch import GrowingColumn, is_moved, is_paged, move_columns

_BLOCK_ROWS = 1 << 20
_FEWEST_MOVED = 1 << 17  # rows of a frame whose columns are moved


def has_blocks(count: int) -> bool:
    """Return whether this number of rows is worked on in blocks."""
    return count > _BLOCK_ROWS and is_paged()


def list_blocks(count: int) -> list[slice]:
    """List the blocks of some rows: one of all, unless working arrays are in files."""
    if not has_blocks(count):
        return [slice(0, count)]
    return [slice(first, min(first + _BLOCK_ROWS, count)) for first in range(0, count, _BLOCK_ROWS)]


def build_blocks(count: int, build: Callable[[int, int], pl.DataFrame]) -> pl.DataFrame:
    """Build a frame block by block, where working arrays are in files; else all rows at once.

    Args:
        count: Number of rows, or more.
        build: Builds those of the rows [first, stop) that the frame has, equal to those of all rows.
    """
    if not has_blocks(count):
        return build(0, count)
    columns: list[_Column] = []
    height = 0
    for rows in list_blocks(count):
        block = build(rows.start, rows.stop)
        if not columns:
            columns = [_Column(name, dtype, count) for name, dtype in block.schema.items()]
        for column, values in zip(columns, block.iter_columns(), strict=True):
            column.put(height, values)
        height += block.height
    return pl.DataFrame([column.build(height) for column in columns])


def map_column(column: pl.Series, compute: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Compute a column of another one, value by value, like `build_blocks`."""
    return build_blocks(len(column), lambda first, stop: compute(column[first:stop]).to_frame()).to_series()


def map_blocks(count: int, dtype: type[np.generic], compute: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Compute an array block by block, where working arrays are in files; else all of it at once.

    Args:
        count: Number of items.
        dtype: Of the array.
        compute: Computes the items [first, stop), equal to those of all items.
    """
    if not has_blocks(count):
        return compute(0, count)
    values = np.empty(count, dtype=dtype)
    for rows in list_blocks(count):
        values[rows] = compute(rows.start, rows.stop)
    return values


def move_frame(frame: pl.DataFrame, names: Sequence[str] | None = None) -> pl.DataFrame:
    """Move large columns of a frame to a scratch, columns of words or with nulls only where working arrays are in files.

    Args:
        frame: The frame.
        names: As for `move_columns`; of columns without null and words.
    """
    moved = move_columns(frame, None if names is None else list(names))
    if not is_paged() or len(frame) < _FEWEST_MOVED:
        return moved
    for position, column in enumerate(moved.iter_columns()):
        is_plain = column.dtype.is_numeric() and not column.null_count()
        if is_plain or column.null_count() == len(column) or not _is_kept(column.dtype):
            continue
        if not column.null_count() and is_moved(column.to_physical().to_numpy()):
            continue
        target = _Column(column.name, column.dtype, len(column))
        for first in range(0, len(column), _BLOCK_ROWS):
            target.put(first, column.slice(first, _BLOCK_ROWS))
        moved.replace_column(position, target.build(len(column)))
    return moved


def join_frames(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join frames with the same columns, like `join_columns`."""
    if len(parts) == 1 or not is_paged():
        return pl.concat(parts, rechunk=True)
    return pl.DataFrame([join_columns([part[name] for part in parts]) for name in parts[0].columns])


def join_columns(parts: Sequence[pl.Series]) -> pl.Series:
    """Join parts of a column, in a scratch where working arrays are in files."""
    if not is_paged():
        return pl.concat(parts, rechunk=True)
    count = sum(map(len, parts))
    column, first = _Column(parts[0].name, parts[0].dtype, count), 0
    for part in parts:
        column.put(first, part)
        first += len(part)
    return column.build(count)


class _Column:
    """A column that comes block by block."""

    def __init__(self, name: str, dtype: pl.DataType, count: int) -> None:
        self._name, self._dtype = name, dtype
        self._count = count
        self._values: GrowingColumn | None = None
        self._words: pl.Series | None = None  # polars forgets categories that no column has
        self._is_null: list[pl.Series] = []  # of each block
        self._parts: list[pl.Series] = []  # of types that stay in memory

    def put(self, first: int, values: pl.Series) -> None:
        """Add the values of the next block."""
        if not _is_kept(self._dtype):
            self._parts.append(values.rechunk())
            return
        if not len(values):
            return
        null_count = values.null_count()
        is_null = pl.Series([True]).new_from_index(0, len(values)) if null_count == len(values) else None
        if null_count not in (0, len(values)):
            is_null = values.is_null()
        self._words = values.clear()
        self._is_null.append(
            pl.Series([False]).new_from_index(0, len(values)) if is_null is None else is_null
        )
        codes = values.to_physical()
        numbers = (codes.fill_null(0) if null_count else codes).to_numpy()
        if self._values is None:
            self._values = GrowingColumn(self._count, numbers.dtype)
        self._values.put(first, numbers)

    def build(self, count: int) -> pl.Series:
        """Return the column."""
        if not count:
            return pl.Series(self._name, [], dtype=self._dtype)
        if self._values is None:
            return pl.concat(self._parts, rechunk=True).alias(self._name)
        is_null = pl.concat(self._is_null, rechunk=True)
        if is_null.all():
            return pl.Series(self._name, [None], dtype=self._dtype).new_from_index(0, count)
        values = pl.Series(self._name, self._values.build(count))
        if is_null.any():
            values = values.set(is_null, None)
        return values if values.dtype == self._dtype else as_words(values, self._dtype)


def _is_kept(dtype: pl.DataType) -> bool:
    """Return whether columns of a type are in a scratch."""
    return dtype.is_numeric() or isinstance(dtype, pl.Categorical | pl.Enum)


def as_words(codes: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Return the words of codes, without a copy."""
    with suppress(AttributeError, pl.exceptions.PolarsError):
        return codes.cat.to(dtype)
    return codes.cast(dtype)  # polars before 2.0
