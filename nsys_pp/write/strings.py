"""Strings of categorical columns, each handled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


def intern(column: pl.Series) -> tuple[pl.Series, NDArray[np.uint32]]:
    """Number the strings of a categorical column 1, 2, ... in order of appearance.

    The column's own codes will not do: they count all strings of the process, and depend on
    which was met first.

    Args:
        column: Categorical, Enum or String.

    Returns:
        The strings in order of their numbers, and each row's number; a null row has 0.
    """
    if column.dtype == pl.String:
        column = column.cast(pl.Categorical())
    if column.null_count() == len(column):
        return pl.Series([], dtype=pl.String), np.zeros(len(column), dtype=np.uint32)
    if column.null_count():
        known = column.is_not_null().to_numpy()
        numbers = np.zeros(len(column), dtype=np.uint32)
        texts, numbers[known] = intern(column.drop_nulls())
        return texts, numbers
    first, places = _first_rows(column.to_physical().to_numpy())
    order = np.argsort(first)
    numbers = np.empty(len(first), dtype=np.uint32)
    numbers[order] = np.arange(1, len(first) + 1, dtype=np.uint32)
    return column[first[order]].cast(pl.String), numbers[places]


def _first_rows(codes: NDArray[np.unsignedinteger[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct code, and for each row which of those codes it has."""
    span = int(codes.max()) + 1
    if span > 8 * len(codes):  # a table by code would be mostly empty
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        return first, places
    first_of = np.full(span, -1)
    first_of[codes[::-1]] = np.arange(len(codes))[::-1]  # the last assignment stays
    used = np.flatnonzero(first_of >= 0)
    place_of = np.empty(span, dtype=np.int64)
    place_of[used] = np.arange(len(used))
    return first_of[used], place_of[codes]
