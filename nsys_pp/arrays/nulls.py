"""Nulls of columns as masks, and back: polars' own functions below its queries, which take several times as long for a few thousand rows.

polars does not promise to keep them; where it has others, `has_masks` is false, and its queries answer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Bools
from nsys_pp.frames.columns import build_null

_CATEGORIES = (pl.Enum, pl.Categorical)
_SPLIT = (pl.Boolean, *_CATEGORIES)
_PROBES = {pl.Int64(): np.int64, pl.UInt32(): np.uint32, pl.Float64(): np.float64, pl.Boolean(): np.bool_}


def view_values(column: pl.Series) -> NDArray[Any] | None:
    """Return the memory of a column of numbers of one chunk, with any value for null; None where there is no such memory."""
    if has_masks():
        values: NDArray[Any] | None = column._s.to_numpy_view()
        return values
    is_plain = column.n_chunks() == 1 and column.dtype == pl.Int64 and not column.null_count()
    return column.to_numpy() if is_plain else None


def split_values(column: pl.Series) -> tuple[NDArray[Any], Bools | None]:
    """Return the values of a column of numbers or booleans, any value for null, and the mask of its nulls; None: it has none.

    Only where `has_masks`. The values have the column's type; they may be its own memory, which cannot be written.
    """
    values, is_null = column._s.to_numpy_masked(False, True)
    return values, is_null


def is_marked(dtype: pl.DataType) -> bool:
    """Return whether `mark_nulls` finds the nulls of columns of a type."""
    return has_masks() and (dtype.is_integer() or dtype.is_float() or isinstance(dtype, _SPLIT))


def mark_nulls(column: pl.Series) -> Bools:
    """Return the mask of the nulls of a column; only where `is_marked`."""
    found = column._s
    if isinstance(column.dtype, _CATEGORIES):
        found = found.eq(found)  # true, or null
    is_null: Bools | None = found.to_numpy_masked(False, True)[1]
    return np.zeros(len(column), dtype=np.bool_) if is_null is None else is_null


def set_nulls(column: pl.Series, is_null: pl.Series) -> pl.Series:
    """Replace values of a column by null: `column.set(is_null, None)`, which builds a column of a null each time.

    Args:
        column: The column.
        is_null: Mask of the values.
    """
    return pl.Series._from_pyseries(column._s.set(is_null._s, build_null(column.dtype)._s))


@cache
def has_masks() -> bool:
    """Return whether polars has these functions."""
    try:
        # it begins after a null
        column = pl.concat([pl.Series([None, 1, None])[1:], pl.Series([0, 1])], rechunk=False)
        return all(_is_split(column, dtype) for dtype in _PROBES) and _are_marked()
    except (AttributeError, TypeError, pl.exceptions.PolarsError):
        return False


def _is_split(column: pl.Series, dtype: pl.DataType) -> bool:
    """Return whether a column in several chunks is split as a type."""
    column = column.cast(dtype)
    values, is_null = split_values(column)
    return (
        is_null is not None
        and is_null.dtype == np.bool_
        and is_null.tolist() == [False, True, False, False]
        and values[~is_null].tolist() == [1, 0, 1]
        and values.dtype == _PROBES[dtype]
        and split_values(column[:1])[1] is None
        and _is_viewed(column)
    )


def _is_viewed(column: pl.Series) -> bool:
    """Return whether one chunk of numbers is seen as its memory, and no other column is."""
    seen = column[1:3].rechunk()._s.to_numpy_view()
    if column._s.to_numpy_view() is not None or column.dtype == pl.Boolean:
        return seen is None
    return seen is not None and seen.tolist()[1:] == [0]


def _are_marked() -> bool:
    """Return whether nulls of categories are found, and set."""
    for dtype in (pl.Enum(["a", "b"]), pl.Categorical()):
        words = pl.Series(["b", "a", "b"], dtype=dtype)
        found = set_nulls(words, build_column("", np.array([False, True, False])))
        if found.dtype != dtype or found.to_list() != ["b", None, "b"]:
            return False
        if mark_nulls(found[1:]).tolist() != [True, False]:
            return False
    return True
