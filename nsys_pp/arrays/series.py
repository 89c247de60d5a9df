"""Columns of polars from arrays and rows; `pl.Series` spends most of its time for a few thousand rows on finding its constructor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

# of each type: constructor, whether its last argument (for floats: NaN becomes null) is true, and type of the column
_KINDS: Mapping[str, tuple[str, bool, type[pl.DataType]]] = {
    "int64": ("new_i64", True, pl.Int64),
    "int32": ("new_i32", True, pl.Int32),
    "uint32": ("new_u32", True, pl.UInt32),
    "uint8": ("new_u8", True, pl.UInt8),
    "float64": ("new_f64", False, pl.Float64),
    "bool": ("new_bool", True, pl.Boolean),
}
_Constructor = tuple[Callable[[str, NDArray[Any], bool], Any], bool]


def _find_constructors() -> Mapping[np.dtype[Any], _Constructor]:
    """Find polars' own constructors, which it does not promise to keep; empty where they are others."""
    found: dict[np.dtype[Any], _Constructor] = {}
    try:
        from polars._plr import PySeries

        for kind, (name, flag, dtype) in _KINDS.items():
            construct = getattr(PySeries, name)
            column = pl.Series._from_pyseries(construct("name", np.array([0, 1], kind), flag))
            if column.dtype != dtype or (column.name, column.to_list()) != ("name", [0, 1]):
                return {}
            found[np.dtype(kind)] = construct, flag
    except (ImportError, AttributeError, TypeError):
        return {}
    return found


_CONSTRUCTORS = _find_constructors()


def build_column(name: str, values: NDArray[Any], dtype: pl.DataType | None = None) -> pl.Series:
    """Build a column of an array, equal to `pl.Series(name, values, dtype)`; it may share the array's memory.

    >>> build_column("rows", np.array([2, 0])).to_list()
    [2, 0]
    """
    found, flags = _CONSTRUCTORS.get(values.dtype), values.flags
    is_plain = values.ndim == 1 and flags.c_contiguous and flags.aligned and type(values) is np.ndarray
    if found is None or not is_plain:
        return pl.Series(name, values, dtype)
    construct, flag = found
    column = pl.Series._from_pyseries(construct(name, values, flag))
    return column if dtype is None or column.dtype == dtype else column.cast(dtype)


def gather_values(column: pl.Series, row: pl.Series) -> pl.Series:
    """Gather values of a column, equal to `column[row]`.

    Args:
        column: The column.
        row: Rows (UInt32) of the column; null for null.

    >>> gather_values(pl.Series([5, 7]), pl.Series([1, None], dtype=pl.UInt32)).to_list()
    [7, None]
    """
    if not _has_gather():
        return column[row]
    return pl.Series._from_pyseries(column._s.gather_with_series(row._s))


def gather_frame(frame: pl.DataFrame, row: pl.Series) -> pl.DataFrame:
    """Gather rows of a frame column by column, equal to `frame[row]`, which gathers them in other threads: faster for few rows.

    Args:
        frame: The frame, of at least one column.
        row: Rows (UInt32) of the frame; null for null.
    """
    return _gather(frame, row) if _has_gather() else frame[row]


def _gather(frame: pl.DataFrame, row: pl.Series) -> pl.DataFrame:
    from polars._plr import PyDataFrame

    indices = row._s
    columns = [column.gather_with_series(indices) for column in frame._df.get_columns()]
    return pl.DataFrame._from_pydf(PyDataFrame(columns))


@cache
def _has_gather() -> bool:
    """Return whether polars has the functions below `frame[row]`, which it does not promise to keep."""
    frame = pl.DataFrame({"name": [5, 7], "text": ["a", None]})
    row, beyond = (pl.Series(rows, dtype=pl.UInt32) for rows in ([1, None, 0], [2]))
    try:
        gathered = _gather(frame, row)
        with suppress(pl.exceptions.OutOfBoundsError):
            _gather(frame, beyond)
            return False
    except (AttributeError, ImportError, TypeError, pl.exceptions.PolarsError):
        return False
    return gathered.to_dict(as_series=False) == {"name": [7, None, 5], "text": [None, None, "a"]}
