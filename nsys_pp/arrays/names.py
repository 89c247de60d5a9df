"""Names of rows (`NAME`), whose distinct texts are decoded and matched once.

Arrays stand for rows as in `columns.py`.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather, numbers
from nsys_pp.arrays.types import Bools, Int64s


class Names(Struct, frozen=True):
    """Distinct names of a column (`NAME`), each searched once."""

    texts: pl.Series
    row: Int64s  # of each row of the column, in `texts`

    def match(self, pattern: str) -> Bools:
        """Return the mask of the rows whose name contains a match of an expression; false for null."""
        return self.texts.str.contains(pattern).fill_null(value=False).to_numpy()[self.row]

    def list_rows(self, pattern: str) -> Int64s:
        """List the rows whose name contains a match."""
        return np.flatnonzero(self.match(pattern))


def list_names(names: pl.Series) -> Names:
    """List the distinct names of a column."""
    first, row = find_distinct(numbers(names, null=-1))
    return Names(gather(names, first).cast(pl.String), row)


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a match; each distinct name is searched once."""
    return list_names(names).match(pattern)


# Python converts no text of more than 4,300 digits to a number; of such a one, the pieces are compared
_WORDS = re.compile(r"(\D*)(\d{0,4000})")


def natural_key(text: str) -> list[tuple[str, int]]:
    """Split a name into words and numbers, as a key to sort by.

    >>> sorted(["node10", "node2"], key=natural_key)
    ['node2', 'node10']
    """
    return [(word, int(number or -1)) for word, number in _WORDS.findall(text)]
