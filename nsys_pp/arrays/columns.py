"""Columns of frames as arrays, and back; the null convention of arrays.

Arrays of integers have no null. `NEVER` stands for it in times, ids and other numbers of any size; -1 stands
for it in rows, indices, codes of categories and numbers that count from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.types import Bools, Int64s

HALF_OF_INT64 = 1 << 62
# Null in arrays; no time and no id is as small.
NEVER = np.int64(-HALF_OF_INT64)
# No time and no id is as large.
EVER = np.int64(HALF_OF_INT64)
_Value = TypeVar("_Value", bound=np.generic)


def numbers(series: pl.Series, *, null: int | np.int64 = NEVER) -> Int64s:
    """Return the values of a column of integers, or the codes of a column of categories; `null` for null."""
    if not series.dtype.is_integer():
        series = series.to_physical()
    if series.null_count():
        series = series.cast(pl.Int64).fill_null(int(null))
    return series.to_numpy().astype(np.int64, copy=False)


def as_numbers(
    name: str, values: Int64s, *, dtype: type[pl.DataType] = pl.Int64, null: int | np.int64 = NEVER
) -> pl.Series:
    """Build a column of values; the inverse of `numbers`."""
    is_null = values == null
    series = pl.Series(name, values).cast(dtype, strict=False)
    return series.set(pl.Series(is_null), None) if is_null.any() else series


def whole_numbers(series: pl.Series) -> Int64s:
    """Return the values of a column of numbers from 0 on, or the codes of an `Enum`; -1 for null."""
    return numbers(series, null=-1)


def has_value(column: pl.Series) -> Bools:
    """Return the mask of values other than null."""
    return column.is_not_null().to_numpy()


def is_among(series: pl.Series, values: Collection[str]) -> Bools:
    """Return the mask of the rows whose category is in `values`; for an `Enum` without nulls."""
    return are_among(series, values)[0]


def are_among(series: pl.Series, *sets: Collection[str]) -> list[Bools]:
    """Return the mask of `is_among` for each of several sets, with one look at the column."""
    categories = series.dtype.categories.to_list()  # type: ignore[attr-defined]
    codes = series.to_physical().to_numpy()
    return [np.array([category in values for category in categories])[codes] for values in sets]


def mark_rows(rows: npt.NDArray[np.integer[Any]], count: int) -> Bools:
    """Return the mask of some of `count` rows.

    >>> mark_rows(np.array([2, 0, 2]), 4)
    array([ True, False,  True, False])
    """
    is_marked = np.zeros(count, dtype=np.bool_)
    is_marked[rows] = True
    return is_marked


def pick(values: npt.NDArray[_Value], row: npt.NDArray[np.integer[Any]], absent: Any) -> npt.NDArray[_Value]:
    """Pick values of an array; `absent` where the row is -1.

    >>> pick(np.array([5, 7]), np.array([1, -1, 0]), 9)
    array([7, 9, 5])
    """
    if not len(values):
        return np.full(len(row), absent, dtype=values.dtype)
    picked: npt.NDArray[_Value] = values[row]
    is_absent = row < 0
    if is_absent.any():
        picked[is_absent] = absent
    return picked


def gather(column: pl.Series, row: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Gather values of a column; null where the row is -1."""
    return column[_build_indices(row)]


def gather_rows(
    frame: pl.DataFrame, columns: Sequence[str], row: npt.NDArray[np.integer[Any]]
) -> pl.DataFrame:
    """Gather rows of some columns; all null where the row is -1."""
    if frame.is_empty():  # no row can be gathered
        return frame[[*columns]].clear(len(row))
    return frame[[*columns]][_build_indices(row)]


def index_rows(frame: pl.DataFrame, row: Int64s) -> pl.DataFrame:
    """Return rows of a frame."""
    return frame[pl.Series("", row.astype(np.uint32))]


def keep_rows(frame: pl.DataFrame, is_kept: Bools) -> pl.DataFrame:
    """Keep the rows of a mask, in order.

    No copy is made if these are all, as they usually are, or rows side by side.
    """
    if is_kept.all():
        return frame
    first, count = int(is_kept.argmax()), int(np.count_nonzero(is_kept))
    if is_kept[first : first + count].all():
        return frame.slice(first, count)
    return frame.filter(is_kept)


def _build_indices(row: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Build indices of the type that polars gathers by; any other takes a query."""
    index, is_absent = pl.Series("", row.astype(np.uint32)), row < 0
    return index.set(pl.Series(is_absent), None) if is_absent.any() else index


def find_distinct(values: npt.NDArray[np.integer[Any]]) -> tuple[Int64s, Int64s]:
    """Find the first row of each distinct value, by value, and the index of each row's value among them.

    >>> first, inverse = find_distinct(np.array([7, 5, 7]))
    >>> first.tolist(), inverse.tolist()
    ([1, 0], [1, 0, 1])
    """
    if not len(values):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span > 8 * len(values):  # a table by value would be mostly empty
        _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        return first, inverse
    offset = values - least
    first_of = np.full(span, -1)
    first_of[offset[::-1]] = np.arange(len(offset))[::-1]  # the last assignment stays
    used = np.flatnonzero(first_of >= 0)
    index_of = np.empty(span, dtype=np.int64)
    index_of[used] = np.arange(len(used))
    return first_of[used], index_of[offset]


def list_distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """List the distinct values of an array, ascending.

    `np.unique` does the same, but takes several times as long for few values.

    >>> list_distinct(np.array([7, 5, 7])).tolist()
    [5, 7]
    """
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def pack(*columns: Int64s) -> Int64s:
    """Combine columns into one number per row: equal where all are equal, and in the order of the columns.

    Args:
        columns: At least one; all of the same length.

    >>> pack(np.array([-1, 3, 3]), np.array([7, 8, 7])).tolist()
    [0, 9, 8]
    """
    packed, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        values, count = column, 1
        if len(column):
            values, count = column - column.min(), int(column.max()) - int(column.min()) + 1
        if size * count >= HALF_OF_INT64:  # ranks fit: their number is at most that of the rows
            packed, values = (np.unique(keys, return_inverse=True)[1] for keys in (packed, column))
            size, count = int(packed.max()) + 1, int(values.max()) + 1
        packed, size = packed * count + values, size * count
    return packed


Record = TypeVar("Record", bound=Struct)


def select_rows(record: Record, rows: npt.NDArray[np.integer[Any]] | Bools) -> Record:
    """Return a record with some of its rows: indices in any order, or a mask."""
    return type(record)(**{name: getattr(record, name)[rows] for name in record.__struct_fields__})


def join_rows(first: Record, *others: Record) -> Record:
    """Return a record with the rows of several, one after the other."""
    return type(first)(
        **{
            name: np.concatenate([getattr(part, name) for part in (first, *others)])
            for name in first.__struct_fields__
        }
    )
