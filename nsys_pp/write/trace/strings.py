"""Interning of strings: each distinct string of a column is processed once."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, gather
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.types import Int64s

NULL = (1 << 32) - 1
"""Code of null; no string has this code."""
WORDS = (pl.Categorical, pl.Enum, pl.String)


def number_words(column: pl.Expr) -> pl.Expr:
    """Return the codes of a string column (UInt32): equal strings have equal codes."""
    return column.cast(pl.Categorical()).to_physical().fill_null(NULL)


def intern(
    column: pl.Series, codes: NDArray[np.uint32] | None = None, rows: Int64s | None = None
) -> tuple[pl.Series, NDArray[np.uint32]]:
    """Number the strings of a column 1, 2, ... in order of appearance.

    The codes of polars cannot be written instead: they number all strings of the process, so they differ between runs.

    Args:
        column: Categorical, Enum or String.
        codes: Codes of the rows (`number_words`); computed if None, of all rows.
        rows: The rows that count, in order; None: all.

    Returns:
        The distinct strings in order of their numbers, and the number of each of these rows; 0 for null.
    """
    if codes is None:
        codes = column.to_frame().select(number_words(pl.col(column.name))).to_series().to_numpy()
    firsts, numbers = _number(codes)
    return gather(column, firsts if rows is None else rows[firsts]).cast(pl.String), numbers


def _number(codes: NDArray[np.uint32]) -> tuple[Int64s, NDArray[np.uint32]]:
    """Return the first row of each number, and the number of each row."""
    core = load_core()
    if core is not None and (numbered := core.number_codes(codes, null=NULL)) is not None:
        return numbered
    numbers = np.zeros(len(codes), dtype=np.uint32)
    present = np.flatnonzero(codes != NULL)
    if not len(present):
        return present, numbers
    first, index = find_distinct(codes[present])
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(first) + 1, dtype=np.uint32)
    numbers[present] = number[index]
    return present[first[order]], numbers
