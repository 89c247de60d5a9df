"""Columns of frames as arrays, and back; the null convention of arrays.

Arrays of integers have no null. `NEVER` stands for it in times, ids and other numbers of any size; -1 stands for it in
rows, indices, codes of categories and numbers that count from 0.

Most frames have a few thousand rows, where a query of polars costs more than its work: steps that depend on each
other therefore run on arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.codes import copy_codes, query_codes, split_codes
from nsys_pp.arrays.nulls import has_masks, is_marked, mark_nulls, set_nulls, split_values, view_values
from nsys_pp.arrays.series import build_column, gather_frame, gather_values
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.columns import select_columns

NEVER = np.int64(-(1 << 62))
"""Null in arrays; no time and no id is as small."""
_HALF_OF_INT64 = 1 << 62
_FEW_ROWS = 50_000
_EXACT_AS_FLOATS = 1 << 53
_Value = TypeVar("_Value", bound=np.generic)


def numbers(series: pl.Series, *, null: int | np.int64 = NEVER) -> Int64s:
    """Return the values of a column of integers, or the codes of a column of categories; `null` for null."""
    values = None if series.null_count() else view_values(series)
    if values is not None and values.dtype == np.int64:
        return values
    dtype, null_count = series.dtype, series.null_count()
    if null_count and null_count == len(series):
        return np.full(null_count, null, dtype=np.int64)
    if not dtype.is_integer():
        if dtype == pl.Boolean and not null_count:
            return series.to_numpy().astype(np.int64)
        codes = copy_codes(series, dtype)
        if codes is not None:
            return codes.astype(np.int64)
        split = split_codes(series, dtype)
        if split is not None:
            return _fill(*split, null)
        series = query_codes(series)
    if not null_count:
        return series.to_numpy().astype(np.int64, copy=False)
    if has_masks() and series.dtype.is_integer() and series.dtype != pl.UInt64:  # some of these are no Int64
        return _fill(*split_values(series), null)
    if len(series) < _FEW_ROWS and series.dtype.is_integer():
        floats = series.to_numpy()  # nulls are NaN; a query takes longer for few rows
        is_null = np.isnan(floats)
        floats = np.where(is_null, 0, floats)
        if np.abs(floats).max() < _EXACT_AS_FLOATS:
            values = floats.astype(np.int64)
            values[is_null] = null
            return values
    series = series.cast(pl.Int64)
    return series.set(series.is_null(), int(null)).to_numpy()


def _fill(values: npt.NDArray[Any], is_null: Bools | None, null: int | np.int64) -> Int64s:
    """Return the values as integers, `null` for null."""
    filled = values.astype(np.int64)
    if is_null is not None:
        np.putmask(filled, is_null, null)
    return filled


def as_numbers(
    name: str, values: Int64s, *, dtype: type[pl.DataType] = pl.Int64, null: int | np.int64 = NEVER
) -> pl.Series:
    """Build a column of values; the inverse of `numbers`."""
    is_null = values == null
    series = build_column(name, values)
    if dtype is not pl.Int64:
        series = series.cast(dtype, strict=False)
    return clear_values(series, is_null) if is_null.any() else series


def clear_values(series: pl.Series, is_null: Bools) -> pl.Series:
    """Replace the values of a mask by null.

    >>> clear_values(pl.Series([5, 7]), np.array([True, False])).to_list()
    [None, 7]
    """
    mask = build_column("", is_null)
    return set_nulls(series, mask) if has_masks() else series.set(mask, None)


def whole_numbers(series: pl.Series) -> Int64s:
    """Return the values of a column of numbers from 0 on, or the codes of an `Enum`; -1 for null."""
    return numbers(series, null=-1)


def as_whole_numbers(values: Int64s, dtype: type[pl.DataType] = pl.Int64) -> pl.Series:
    """Build a column of values; the inverse of `whole_numbers`."""
    return as_numbers("", values, dtype=dtype, null=-1)


def fill_null(series: pl.Series, value: int) -> pl.Series:
    """Replace the nulls of a column of integers; without nulls, which is usual, nothing is done."""
    return series.fill_null(value) if series.null_count() else series


def has_value(column: pl.Series) -> Bools:
    """Return the mask of values other than null; no query where none is null, or all are, as usual."""
    null_count = column.null_count()
    if null_count in (0, len(column)):
        return np.full(len(column), null_count == 0)
    if is_marked(column.dtype):  # a query takes longer
        return ~mark_nulls(column)
    mask: Bools = column.is_not_null().to_numpy()
    return mask


def split_nulls(series: pl.Series) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return the values of a column of numbers or booleans, any value for null, and the mask of the others; None: all.

    Without a query where polars has masks, or the values are exact as floats, which have NaN for null.
    """
    null_count = series.null_count()
    if not null_count:
        return series.to_numpy(), None
    if null_count == len(series):
        return np.zeros(len(series), np.float64 if series.dtype.is_float() else np.int64), np.zeros(
            len(series), np.bool_
        )
    if has_masks():
        values, is_null = split_values(series)
        return values, None if is_null is None else ~is_null
    values = (series.cast(pl.UInt8) if series.dtype == pl.Boolean else series).to_numpy()
    is_null = np.isnan(values)
    is_exact = int(is_null.sum()) == null_count  # of floats, NaN is a value, too
    if not series.dtype.is_float() and is_exact:
        values = np.where(is_null, 0, values)
        is_exact = bool(np.abs(values).max(initial=0) < _EXACT_AS_FLOATS)
        if is_exact:
            values = values.astype(np.int64)
    if not is_exact:
        filled = series.fill_null(0)
        return filled.to_numpy(), series.is_not_null().to_numpy()
    return values, ~is_null


def is_among(series: pl.Series, values: Collection[str]) -> Bools:
    """Return the mask of the rows whose category is in `values`; for an `Enum` without nulls."""
    return are_among(series, values)[0]


def are_among(series: pl.Series, *sets: Collection[str]) -> list[Bools]:
    """Return the mask of `is_among` for each of several sets, with one look at the column."""
    dtype = series.dtype
    codes = copy_codes(series, dtype)
    if codes is None:
        codes = query_codes(series).to_numpy()
    return [mark_categories(dtype, values)[codes] for values in sets]  # type: ignore[arg-type]


def mark_categories(dtype: pl.Enum, values: Collection[str]) -> Bools:
    """Return the mask of the categories, by their code, that are among values; for codes that are searched several times.

    >>> mark_categories(pl.Enum(["send", "receive"]), ("receive",))
    array([False,  True])
    """
    return np.array([category in values for category in dtype.categories.to_list()], dtype=np.bool_)


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
    return gather_values(column, _build_indices(row))


def gather_rows(
    frame: pl.DataFrame, columns: Sequence[str], row: npt.NDArray[np.integer[Any]]
) -> pl.DataFrame:
    """Gather rows of some columns; all null where the row is -1."""
    if frame.is_empty():  # no row can be gathered
        return select_columns(frame, columns).clear(len(row))
    return _gather(select_columns(frame, columns), _build_indices(row))


def set_column(frame: pl.DataFrame, column: pl.Series) -> pl.DataFrame:
    """Return a frame with one column replaced, or added."""
    if column.name not in frame.columns:
        return frame.hstack([column])
    return frame.clone().replace_column(frame.get_column_index(column.name), column)


def add_constants(frame: pl.DataFrame, values: Sequence[pl.Series]) -> pl.DataFrame:
    """Add columns of one value, each a column of one row: literals need no memory, but a query, which takes longer than to write few rows."""
    if len(frame) < _FEW_ROWS:
        return frame.hstack([value.new_from_index(0, len(frame)) for value in values])
    return frame.with_columns(pl.lit(value[0], value.dtype).alias(value.name) for value in values)


def index_rows(frame: pl.DataFrame, row: Int64s) -> pl.DataFrame:
    """Return rows of a frame: `frame[row]`, which spends most of its time on the check of the indices of few rows."""
    return _gather(frame, build_column("", row.astype(np.uint32)))


def index_column(column: pl.Series, row: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Return values of a column: `column[row]`, like `index_rows`."""
    return gather_values(column, build_column("", row.astype(np.uint32)))


def keep_rows(frame: pl.DataFrame, is_kept: Bools) -> pl.DataFrame:
    """Keep the rows of a mask, in order; without a copy if these are all, as they usually are, or rows side by side."""
    if is_kept.all():
        return frame
    first, count = int(is_kept.argmax()), int(np.count_nonzero(is_kept))
    if is_kept[first : first + count].all():
        return frame.slice(first, count)
    if len(is_kept) > _FEW_ROWS:  # indices would take more memory than the mask
        return frame.filter(is_kept)
    return _gather(frame, _build_indices(np.flatnonzero(is_kept)))


def _gather(frame: pl.DataFrame, row: pl.Series) -> pl.DataFrame:
    """Gather rows of a frame; of many rows, polars gathers its columns side by side."""
    if len(row) > _FEW_ROWS or not frame.width:
        return frame[row]
    return gather_frame(frame, row)


def _build_indices(row: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Build indices of the type that polars gathers by; any other takes a query."""
    index, is_absent = build_column("", row.astype(np.uint32)), row < 0
    return clear_values(index, is_absent) if is_absent.any() else index


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
    """List the distinct values of an array, ascending, as `np.unique`, which takes several times as long for few values.

    >>> list_distinct(np.array([7, 5, 7])).tolist()
    [5, 7]
    """
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def pack(*columns: Int64s) -> Int64s:
    """Combine columns into one number per row, equal where all columns are equal.

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
        if size * count >= _HALF_OF_INT64:  # ranks fit: their number is at most that of the rows
            packed, values = (np.unique(keys, return_inverse=True)[1] for keys in (packed, column))
            size, count = int(packed.max()) + 1, int(values.max()) + 1
        packed, size = packed * count + values, size * count
    return packed
