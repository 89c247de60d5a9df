"""Interning of strings: each distinct string of a column is processed once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, gather, index_column
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.names import Texts, as_texts
from nsys_pp.arrays.row_packets import number_columns as core_number_columns
from nsys_pp.arrays.types import Int64s

NULL = (1 << 32) - 1
"""Code of null; no string has this code."""
_CACHE_SIZE = 256
_FEW_WORDS = 4_096  # distinct ones of a column, kept as a list
WORDS = (pl.Categorical, pl.Enum, pl.String)
Strings: TypeAlias = "Texts | list[str]"


def number_words(column: pl.Series) -> pl.Expr:
    """Return the expression of the codes of a string column (UInt32): equal strings have equal codes."""
    has_codes = isinstance(column.dtype, pl.Categorical)
    return _list_codes(column.name, has_codes=has_codes, has_nulls=column.null_count() > 0)


@lru_cache(_CACHE_SIZE)
def _list_codes(name: str, *, has_codes: bool, has_nulls: bool) -> pl.Expr:
    """Build an expression; the reports of a run have the same columns."""
    words = pl.col(name)
    if not has_codes:
        words = words.cast(pl.Categorical())
    return words.to_physical().fill_null(NULL) if has_nulls else words.to_physical()


def intern(column: pl.Series) -> tuple[pl.Series, NDArray[np.uint32]]:
    """Number the strings of a column (Categorical, Enum or String) 1, 2, ... in order of appearance.

    The codes of polars cannot be written instead: they number all strings of the process, so they differ between runs.

    Returns:
        The distinct strings in order of their numbers, and the number of each row; 0 for null.
    """
    codes = column.to_frame().select(number_words(column)).to_series().to_numpy()
    firsts, own = _number(codes)
    return as_texts(gather(column, firsts)), own


class Words:
    """A column of strings, each with its number in order of appearance.

    Args:
        column: Categorical, Enum or String.
        codes: Its codes (`number_words`).
    """

    def __init__(self, column: pl.Series, codes: NDArray[np.uint32]) -> None:
        self._column = column
        self._firsts, self.codes = _number(codes)
        self._texts: list[str] | None = None

    @property
    def count(self) -> int:
        """Number of distinct strings; their numbers are 1 to this."""
        return len(self._firsts)

    def list_texts(self, used: NDArray[np.uint32]) -> Strings:
        """List the strings of some numbers: a list where there are few in all."""
        if self.count > _FEW_WORDS:
            return Texts(gather(self._column, self._firsts[used.astype(np.int64) - 1]))
        if self._texts is None:
            self._texts = as_texts(index_column(self._column, self._firsts)).to_list()
        return [self._texts[number - 1] for number in used.tolist()]


def number_columns(
    columns: Sequence[Words], rows: Int64s | None, groups: Sequence[int]
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.uint32]]]:
    """Number the strings of some rows of columns 1, 2, ... in order of appearance.

    Args:
        columns: Strings of columns of one frame.
        rows: The rows that count, in order; None: all.
        groups: Group of each column: the columns of a group are numbered on.

    Returns:
        The number of each of these rows, per column, 0 for null; and per column the numbers in all of it, in order of the
        numbers in these rows.
    """
    if not columns:
        return [], []
    core = load_core()
    if core is not None and rows is not None:
        most = max(column.count for column in columns)
        return core_number_columns(core, [column.codes for column in columns], rows, groups, most)
    own, used = [], []
    before: dict[int, int] = {}
    for column, group in zip(columns, groups, strict=True):
        codes, in_order = column.codes, np.arange(1, column.count + 1, dtype=np.uint32)
        if rows is not None:
            gathered = codes[rows]
            firsts, codes = _number(np.where(gathered == 0, np.uint32(NULL), gathered))
            in_order = gathered[firsts]
        offset = before.setdefault(group, 0)
        own.append(np.where(codes == 0, codes, codes + np.uint32(offset)) if offset else codes)
        used.append(in_order)
        before[group] += len(in_order)
    return own, used


def _number(codes: NDArray[np.uint32]) -> tuple[Int64s, NDArray[np.uint32]]:
    """Return the first row of each number, and the number of each row."""
    core = load_core()
    if core is not None and (numbered := core.number_codes(codes, null=NULL)) is not None:
        return numbered
    own = np.zeros(len(codes), dtype=np.uint32)
    present = np.flatnonzero(codes != NULL)
    if not len(present):
        return present, own
    first, index = find_distinct(codes[present])
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(first) + 1, dtype=np.uint32)
    own[present] = number[index]
    return present[first[order]], own
