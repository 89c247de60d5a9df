"""Columns of frames as arrays, and back.

Most frames have a few thousand rows, where a call of polars costs more than the work in it: what follows one
row after the other is therefore done on arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.arrays.types import Bools, Int64s

NEVER = np.int64(-(1 << 62))
"""Stands for null; no time and no id is as small."""
_MOST = 1 << 62


def numbers(series: pl.Series, *, null: int | np.int64 = NEVER) -> Int64s:
    """Return the values of a column of integers, or the codes of words; `null` stands for null."""
    if not series.dtype.is_integer():
        series = series.to_physical()
    if series.null_count():
        series = series.cast(pl.Int64).set(series.is_null(), int(null))
    return series.to_numpy().astype(np.int64, copy=False)


def as_numbers(
    name: str, values: Int64s, *, dtype: type[pl.DataType] = pl.Int64, null: int | np.int64 = NEVER
) -> pl.Series:
    """Make a column of values; the opposite of `numbers`."""
    is_null = values == null
    series = pl.Series(name, values).cast(dtype, strict=False)
    return series.set(pl.Series(is_null), None) if is_null.any() else series


def is_among(words: pl.Series, some: Collection[str]) -> Bools:
    """Say of each word of an `Enum` without nulls whether it is one of `some`."""
    every = words.dtype.categories  # type: ignore[attr-defined]
    is_one = np.array([word in some for word in every], dtype=np.bool_)
    found: Bools = is_one[words.to_physical().to_numpy()]
    return found


def find_distinct(values: npt.NDArray[np.integer[Any]]) -> tuple[Int64s, Int64s]:
    """Find the first row of each different value, by value, and which of them each row has.

    >>> first, which = find_distinct(np.array([7, 5, 7]))
    >>> first.tolist(), which.tolist()
    ([1, 0], [1, 0, 1])
    """
    if not len(values):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    least, span = values.min(), int(values.max()) - int(values.min()) + 1
    if span > 8 * len(values):  # a table by value would be mostly empty
        _, first, which = np.unique(values, return_index=True, return_inverse=True)
        return first, which
    at = values - least
    first_of = np.full(span, -1)
    first_of[at[::-1]] = np.arange(len(at))[::-1]  # the last assignment stays
    used = np.flatnonzero(first_of >= 0)
    which_of = np.empty(span, dtype=np.int64)
    which_of[used] = np.arange(len(used))
    return first_of[used], which_of[at]


def pack(*columns: Int64s) -> Int64s:
    """Make one number of several, equal where all of them are; at least one column, all equally long.

    >>> pack(np.array([-1, 3, 3]), np.array([7, 8, 7])).tolist()
    [0, 9, 8]
    """
    packed, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        values, count = column, 1
        if len(column):
            values, count = column - column.min(), int(column.max()) - int(column.min()) + 1
        if size * count >= _MOST:  # ranks fit: there are no more of them than rows
            packed, values = (np.unique(each, return_inverse=True)[1] for each in (packed, column))
            size, count = int(packed.max()) + 1, int(values.max()) + 1
        packed, size = packed * count + values, size * count
    return packed
