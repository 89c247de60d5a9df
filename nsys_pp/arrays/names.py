"""Names of rows (`NAME`), whose distinct texts are decoded and matched once, and expressions for names.

Arrays stand for rows as in `columns.py`.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, gather, numbers
from nsys_pp.arrays.types import Bools, Int64s

# Classes of Unicode digits and letters make expressions many times slower.
_ASCII = {"d": "[0-9]", "w": "[0-9A-Za-z_]"}
_CLASS = re.compile(r"(?<!\\)((?:\\\\)*)\\([dw])")


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


def check_pattern(pattern: str) -> list[str]:
    """Check that polars can use an expression; it searches in time that is proportional to a name's length.

    Returns:
        Its groups in order; those without a name have their number.

    Raises:
        ValueError: polars cannot use it.
    """
    try:
        pattern.encode()  # of a command line, it may have bytes that are no characters
        return pl.Series([""]).str.extract_groups(pattern).struct.fields
    except UnicodeEncodeError:
        raise ValueError(f"invalid regular expression {pattern!r}: not UTF-8") from None
    except pl.exceptions.ComputeError as error:
        reason = str(error).splitlines()[-1].rpartition("error: ")[2].rstrip(".")
        raise ValueError(f"invalid regular expression `{pattern}`: {reason}") from None


def to_ascii(pattern: str) -> str:
    r"""Replace `\d` and `\w` by ASCII digits and letters.

    >>> to_ascii(r"F\d+_[\w.]+")
    'F[0-9]+_[[0-9A-Za-z_].]+'
    """
    return _CLASS.sub(lambda match: match[1] + _ASCII[match[2]], pattern)
