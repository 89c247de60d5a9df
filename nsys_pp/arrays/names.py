"""Names of rows (`NAME`), whose distinct texts are decoded and matched once.

Arrays stand for rows as in `columns.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather, index_column, numbers
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import NAME


def as_texts(names: pl.Series) -> pl.Series:
    """Return the texts of a column of names (`NAME`), or of another column of texts."""
    return names.cast(pl.String)


def map_names(names: pl.Series, compute: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Compute a name (`NAME`) of each distinct name, text by text."""
    distinct = list_names(names)
    return gather(compute(distinct.texts).cast(NAME), distinct.row).alias(names.name)


class Names(Struct, frozen=True):
    """Distinct names of a column (`NAME`), each searched once."""

    texts: pl.Series
    row: Int64s  # of each row of the column, in `texts`

    def contain(self, pattern: str) -> Bools:
        """Return the mask of the rows whose name contains a pattern of Python."""
        search = re.compile(pattern).search
        found = [name is not None and search(name) is not None for name in self.texts.to_list()]
        return np.array(found, dtype=np.bool_)[self.row]

    def match(self, pattern: str) -> Bools:
        """Return the mask of the rows whose name contains a match of an expression of polars.

        It is false for null.
        """
        return self.texts.str.contains(pattern).fill_null(value=False).to_numpy()[self.row]

    def list_rows(self, pattern: str) -> Int64s:
        """List the rows whose name contains a pattern."""
        return np.flatnonzero(self.contain(pattern))


def list_names(names: pl.Series) -> Names:
    """List the distinct names of a column."""
    first, row = find_distinct(numbers(names, null=-1))
    return Names(as_texts(index_column(names, first)), row)


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a pattern; each distinct name is searched once."""
    return list_names(names).contain(pattern)


def is_matched(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a match of an expression of polars; false for null."""
    return list_names(names).match(pattern)


# Python converts no text of more than 4,300 digits to a number; of such a one, the pieces are compared
_WORDS = re.compile(r"(\D*)(\d{0,4000})")


def natural_key(text: str) -> list[tuple[str, int]]:
    """Split a name into words and numbers, as a key to sort by.

    >>> sorted(["node10", "node2"], key=natural_key)
    ['node2', 'node10']
    """
    return [(word, int(number or -1)) for word, number in _WORDS.findall(text)]
