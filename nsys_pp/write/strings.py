"""Strings of categorical columns, each handled once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.columns import find_distinct

Words = tuple[pl.Series, NDArray[np.uint32]]
"""Strings in the order of their numbers, and the number of each row."""

_NULL = (1 << 32) - 1  # no string has this code


def code_words(tables: Iterable[pl.DataFrame]) -> list[pl.DataFrame]:
    """Give the code of every word in tables: the same number for the same word of a column.

    The tables are asked about together: one by one, most of the time would go into asking.

    Returns:
        Of each table, its columns of words (Categorical, Enum or String) as UInt32.
    """
    code = pl.col(pl.Categorical, pl.Enum, pl.String).cast(pl.Categorical()).to_physical().fill_null(_NULL)
    return pl.collect_all([table.lazy().select(code) for table in tables])


def intern(column: pl.Series, codes: pl.Series | None = None) -> Words:
    """Number the strings of a column 1, 2, ... in order of appearance.

    Codes themselves will not do: they count all strings of the process, and depend on which was met first.

    Args:
        column: Categorical, Enum or String.
        codes: Its codes, where they are known (`code_words`).

    Returns:
        The strings in order of their numbers, and each row's number; a null row has 0.
    """
    if codes is None:
        (coded,) = code_words([column.to_frame("word")])
        codes = coded["word"]
    return _number(column, codes.to_numpy())


def _number(column: pl.Series, codes: NDArray[np.uint32]) -> Words:
    numbers = np.zeros(len(codes), dtype=np.uint32)
    known = np.flatnonzero(codes != _NULL)
    if not len(known):
        return pl.Series([], dtype=pl.String), numbers
    first, places = find_distinct(codes[known])
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(first) + 1, dtype=np.uint32)
    numbers[known] = number[places]
    return column[known[first[order]]].cast(pl.String), numbers
