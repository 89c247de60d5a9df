"""Strings of categorical columns, each handled once."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct

NULL = (1 << 32) - 1
"""The code of null; no word has it."""
WORDS = (pl.Categorical, pl.Enum, pl.String)
CODE = pl.col(*WORDS).cast(pl.Categorical()).to_physical().fill_null(NULL)
"""The code of every word in a frame (UInt32): the same for the same word of a column."""


def intern(column: pl.Series, codes: pl.Series | None = None) -> tuple[pl.Series, NDArray[np.uint32]]:
    """Number the strings of a column 1, 2, ... in order of appearance.

    Codes themselves will not do: they count all strings of the process, and depend on which was met first.

    Args:
        column: Categorical, Enum or String.
        codes: Its codes, where they are known (`CODE`).

    Returns:
        The strings in order of their numbers, and each row's number; a null row has 0.
    """
    if codes is None:
        codes = column.to_frame().select(CODE).to_series()
    return _number(column, codes.to_numpy())


def _number(column: pl.Series, codes: NDArray[np.uint32]) -> tuple[pl.Series, NDArray[np.uint32]]:
    numbers = np.zeros(len(codes), dtype=np.uint32)
    known = np.flatnonzero(codes != NULL)
    if not len(known):
        return pl.Series([], dtype=pl.String), numbers
    first, places = find_distinct(codes[known])
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(first) + 1, dtype=np.uint32)
    numbers[known] = number[places]
    return column[known[first[order]]].cast(pl.String), numbers
