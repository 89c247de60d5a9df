"""Frames of columns.

Polars spends most of its time for a few thousand rows on finding the form of its arguments.

Its own functions below are used where it has them, which it does not promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_FEW_ROWS = 50_000


def build_frame(columns: Iterable[pl.Series]) -> pl.DataFrame:
    """Build a frame of columns with names, at least one: equal to `pl.DataFrame(columns)`.

    >>> build_frame([pl.Series("rows", [2, 0])]).rows()
    [(2,), (0,)]
    """
    build = _find_constructor()
    if build is not None:
        return pl.DataFrame._from_pydf(build([column._s for column in columns]))
    first, *others = columns
    return first.to_frame().hstack(others)


def select_columns(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Select columns of a frame, at least one: equal to `frame[names]`.

    >>> select_columns(pl.DataFrame({"a": [1], "b": [2]}), ["b"]).rows()
    [(2,)]
    """
    if _find_constructor() is not None:
        return pl.DataFrame._from_pydf(frame._df.select([*names]))
    return build_frame(map(frame.get_column, names))


def build_nulls(name: str, dtype: PolarsDataType, count: int) -> pl.Series:
    """Build a column of nulls, which needs no memory.

    >>> build_nulls("step", pl.Int64, 2).to_list()
    [None, None]
    """
    return build_null(dtype).new_from_index(0, count).alias(name)


@cache
def build_null(dtype: PolarsDataType) -> pl.Series:
    """Build a column of one null; the same one each time."""
    return pl.Series([None], dtype=dtype)


def filter_rows(frame: pl.DataFrame, passes: pl.Series) -> pl.DataFrame:
    """Filter a frame of at least one column.

    `frame.filter(passes)`, a query, which takes ten times as long for few rows.

    >>> filter_rows(pl.DataFrame({"a": [1, 2, 3]}), pl.Series([True, None, False])).rows()
    [(1,)]
    """
    if len(frame) > _FEW_ROWS:
        return frame.filter(passes)
    return build_frame(column.filter(passes) for column in frame.iter_columns())


@cache
def _find_constructor() -> Any:
    """Find polars' own constructor of frames; None where it, or its selection of columns, is another."""
    try:
        from polars._plr import PyDataFrame

        columns = [pl.Series("number", [1]), pl.Series("word", ["a"])]
        frame = pl.DataFrame._from_pydf(PyDataFrame([column._s for column in columns]))
        selected = pl.DataFrame._from_pydf(frame._df.select(["word", "number"]))
        found = [(each.columns, each.rows()) for each in (frame, selected)]
    except (AttributeError, ImportError, TypeError, pl.exceptions.PolarsError):
        return None
    expected = [(["number", "word"], [(1, "a")]), (["word", "number"], [("a", 1)])]
    return PyDataFrame if found == expected else None
