"""Names of rows (`NAME`), whose distinct texts are decoded and matched once, few at a time.

Arrays stand for rows as in `columns.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, wraps
from typing import TypeVar, overload

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather, index_column, numbers
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.names import NAME

WINDOW = 1 << 16
"""Texts that are decoded at once."""
_CACHE_SIZE, _MOST_NAMES = 256, 2_048
_Result = TypeVar("_Result")


def as_texts(names: pl.Series) -> pl.Series:
    """Return the texts of a column of names (`NAME`), of few rows, or of another column of texts."""
    return names.cast(pl.String)


def map_names(names: pl.Series, compute: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Compute a name (`NAME`) of each distinct name, text by text, some at a time."""
    first, row = find_distinct(numbers(names, null=-1))
    distinct = index_column(names, first)
    words = [compute(as_texts(distinct[at : at + WINDOW])).cast(NAME) for at in range(0, len(first), WINDOW)]
    return gather(pl.concat(words), row).alias(names.name) if words else pl.Series(names.name, [], NAME)


class Texts(Sequence[str | None]):
    """Texts of a column, each decoded when it is used: Python's strings take several times the memory of the column.

    Args:
        column: Names (`NAME`), or strings.
    """

    def __init__(self, column: pl.Series) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int, /) -> str | None: ...
    @overload
    def __getitem__(self, at: slice, /) -> Sequence[str | None]: ...
    def __getitem__(self, at: int | slice, /) -> str | Sequence[str | None] | None:
        return self.decode(at).to_list() if isinstance(at, slice) else as_texts(self._column[[at]])[0]

    def __iter__(self) -> Iterator[str | None]:
        return (text for first in range(0, len(self), WINDOW) for text in self[first : first + WINDOW])

    def decode(self, at: slice) -> pl.Series:
        """Return some texts as strings."""
        return as_texts(self._column[at])

    def pick(self, rows: Int64s) -> Texts:
        """Pick texts by their row."""
        return Texts(gather(self._column, rows))


def split_texts(texts: Sequence[str | None]) -> Iterator[pl.Series]:
    """Split texts into columns of at most `WINDOW`: an empty one without texts."""
    for first in range(0, max(len(texts), 1), WINDOW):
        at = slice(first, first + WINDOW)
        yield texts.decode(at) if isinstance(texts, Texts) else pl.Series(texts[at], dtype=pl.String)


class Names(Struct, frozen=True):
    """Distinct names of a column (`NAME`), each searched once."""

    texts: Sequence[str | None]  # a tuple, `Texts` of more than `WINDOW`
    row: Int64s  # of each row of the column, in `texts`

    def contain(self, pattern: str) -> Bools:
        """Return the mask of the rows whose name contains a pattern."""
        found = _search(self.texts, pattern)
        mask: Bools = found[self.row] if found.any() else np.zeros(len(self.row), dtype=np.bool_)
        return mask

    def match(self, pattern: str) -> Bools:
        """Return the mask of the rows whose name contains a match of an expression of polars; false for null."""
        found = _match(self.texts, pattern)
        mask: Bools = found[self.row] if found.any() else np.zeros(len(self.row), dtype=np.bool_)
        return mask

    def list_rows(self, pattern: str) -> Int64s:
        """List the rows whose name contains a pattern."""
        return np.flatnonzero(self.contain(pattern))


def list_names(names: pl.Series) -> Names:
    """List the distinct names of a column."""
    if names.is_empty():
        return Names((), np.zeros(0, dtype=np.int64))
    first, row = find_distinct(numbers(names, null=-1))
    return Names(list_texts(index_column(names, first)), row)


def list_texts(column: pl.Series) -> Sequence[str | None]:
    """List the texts of a column of names (`NAME`) or strings: a tuple, `Texts` of more than `WINDOW`."""
    return Texts(column) if len(column) > WINDOW else tuple(as_texts(column).to_list())


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a pattern; each distinct name is searched once."""
    return list_names(names).contain(pattern)


def has_match(names: pl.Series, pattern: str) -> bool:
    """Return whether a name (`NAME`) contains a match of an expression of polars."""
    if names.is_empty():
        return False
    first, _ = find_distinct(numbers(names, null=-1))
    return bool(_match(list_texts(index_column(names, first)), pattern).any())


def is_matched(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a match of an expression of polars; false for null."""
    return list_names(names).match(pattern)


def _cache_few(
    compute: Callable[[Sequence[str | None], str], _Result],
) -> Callable[[Sequence[str | None], str], _Result]:
    """Cache the results of a function for few names: reports of a run mostly have the same ones."""
    cached = lru_cache(_CACHE_SIZE)(compute)

    @wraps(compute)
    def find(names: Sequence[str | None], pattern: str) -> _Result:
        return (cached if len(names) <= _MOST_NAMES else compute)(names, pattern)

    return find


@_cache_few
def extract_texts(names: Sequence[str | None], pattern: str) -> pl.Series:
    """Extract the first group of an expression of polars from distinct names; null without a match.

    Args:
        names: From `list_texts`, e.g. those of `Names`.
        pattern: An expression with a group.
    """
    return pl.concat([texts.str.extract(pattern) for texts in split_texts(names)], rechunk=True)


@_cache_few
def strip_texts(names: Sequence[str | None], pattern: str) -> pl.Series:
    """Remove the first match of an expression of polars from distinct names, as `extract_texts`."""
    return pl.concat([texts.str.replace(pattern, "") for texts in split_texts(names)], rechunk=True)


@_cache_few
def _search(names: Sequence[str | None], pattern: str) -> Bools:
    search = re.compile(pattern).search
    found = (name is not None and search(name) is not None for name in names)
    return np.fromiter(found, np.bool_, len(names))


@_cache_few
def _match(names: Sequence[str | None], pattern: str) -> Bools:
    return np.concatenate([_contains(texts, pattern) for texts in split_texts(names)])


def _contains(texts: pl.Series, pattern: str) -> Bools:
    is_found = texts.str.contains(pattern).to_list()
    return np.array([found is True for found in is_found], dtype=np.bool_)
