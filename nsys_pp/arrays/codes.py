"""Codes of columns of categories, copied from memory: a query of polars takes ten times as long for a few thousand rows."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.nulls import has_masks, mark_nulls
from nsys_pp.arrays.types import Bools

Codes = NDArray[np.unsignedinteger[Any]]
_MOST_BYTES = 200_000  # of more, the copy takes longer than the query
_CODES = pl.all().to_physical()
_CATEGORIES = pl.Categorical()  # of all columns with names; others may have codes of another type


def query_codes(column: pl.Series) -> pl.Series:
    """List the codes of a column of categories, null for null: `to_physical`, which builds its query each time."""
    return column.to_frame().select_seq(_CODES).to_series()


def copy_codes(column: pl.Series, dtype: pl.DataType) -> Codes | None:
    """Copy the codes of a column of categories.

    Args:
        column: The column.
        dtype: Its type, which polars builds each time.

    Returns:
        The codes; None for a column with nulls, of many rows, or of another type, and where polars has no address of codes.

    >>> order = pl.Enum(["first", "second"])
    >>> copy_codes(pl.Series(["second", "first"], dtype=order), order).tolist()
    [1, 0]
    """
    return None if column.null_count() else _copy_any(column, dtype, 0)


def split_codes(column: pl.Series, dtype: pl.DataType) -> tuple[Codes, Bools] | None:
    """Copy the codes of a column of categories with nulls, any code for null, and mark its nulls; None as for `copy_codes`."""
    null_count = column.null_count()
    if not 0 < null_count < len(column) or not has_masks():
        return None
    codes = _copy_any(column, dtype, -(-len(column) // 8))
    return None if codes is None else (codes, mark_nulls(column))


def _copy_any(column: pl.Series, dtype: pl.DataType, mask_bytes: int) -> Codes | None:
    if not _has_address() or not len(column):
        return None
    if isinstance(dtype, pl.Enum):
        return _copy(column, _find_enum_type(len(dtype.categories)), mask_bytes)
    return _copy(column, np.dtype(np.uint32), mask_bytes) if dtype == _CATEGORIES else None


def _copy(column: pl.Series, dtype: np.dtype[Any], mask_bytes: int = 0) -> Codes | None:
    size = len(column) * dtype.itemsize
    # else its codes are of another type, or not its only values; a mask that begins inside a byte is queried
    if size > _MOST_BYTES or column.estimated_size() != size + mask_bytes:
        return None
    # the values of the one chunk, to which polars joins several, from the first row on
    return np.frombuffer(ctypes.string_at(column._s.as_single_ptr(), size), dtype)


@cache
def _find_enum_type(count: int) -> np.dtype[Any]:
    """Find the type of the codes of an `Enum` with a number of categories."""
    empty = pl.Series([], dtype=pl.Enum(map(str, range(count))))
    found: np.dtype[Any] = query_codes(empty).to_numpy().dtype
    return found


@cache
def _has_address() -> bool:
    """Return whether polars has the address of codes, which it does not promise to keep."""
    words = pl.Series(["b", "a", "b", "a", "a"], dtype=pl.Enum(["a", "b"]))
    probes = [words[1:], pl.concat([words[3:], words[:2]], rechunk=False)]
    probes += [probe.cast(pl.Categorical()) for probe in probes]
    types = [np.dtype(np.uint8)] * 2 + [np.dtype(np.uint32)] * 2
    try:
        return all(
            query_codes(probe).dtype.is_unsigned_integer()
            and query_codes(probe).to_numpy().dtype == dtype
            and (copied := _copy(probe, dtype)) is not None
            and copied.tolist() == query_codes(probe).to_list()
            for probe, dtype in zip(probes, types, strict=True)
        )
    except (AttributeError, TypeError, pl.exceptions.PolarsError):
        return False
