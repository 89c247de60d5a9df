"""Columns of drawn rows as arrays: strings as numbers in order of appearance, nulls as masks.

A format writes each distinct string once, by number. The codes of polars cannot be written instead: they
number all strings of the process, so they differ between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.columns import find_distinct, numbers
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.output.trace.drawing import ArrangedSlices, SliceSubtrack, Subtrack, subtrack_rows

WORDS = (pl.Categorical, pl.Enum, pl.String)
Numbers = NDArray[np.uint32]


def intern(column: pl.Series) -> tuple[pl.Series, Numbers]:
    """Number the strings of a column 1, 2, ... in order of appearance.

    Returns:
        The distinct strings in order of their numbers, and the number of each row; 0 for null.
    """
    words = column.cast(pl.Categorical()) if column.dtype == pl.String else column
    first, number = _number((numbers(words, null=-1) + 1).astype(np.uint32))
    return column.gather(first).cast(pl.String), number


class FrameColumns:
    """Columns of a frame, each converted once for all subtracks that have rows of it.

    Args:
        frame: The frame.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.dtypes = {
            column.name: column.dtype for column in frame.iter_columns() if column.null_count() < len(column)
        }
        self._words: dict[str, tuple[Numbers, list[str]]] = {}
        self._values: dict[str, tuple[NDArray[Any], Bools | None]] = {}

    def find_values(self, column: str) -> tuple[NDArray[Any], Bools | None]:
        """Return the values of a column of numbers, any for null, and the mask of the others.

        None: no value is null.
        """
        if column not in self._values:
            values, mask = self.frame.get_column(column), None
            if values.null_count():
                mask = values.is_not_null().to_numpy()
                values = values.fill_null(False if values.dtype == pl.Boolean else 0)
            if values.dtype == pl.Float32:
                values = values.cast(pl.Float64)
            self._values[column] = values.to_numpy(), mask
        return self._values[column]

    def find_words(self, column: str) -> tuple[Numbers, list[str]]:
        """Return the number of the string of each row of a column, 0 for null, and the strings by number."""
        if column not in self._words:
            texts, number = intern(self.frame.get_column(column))
            self._words[column] = number, texts.to_list()
        return self._words[column]


class DrawnRows(Struct, frozen=True, kw_only=True):
    """Rows of subtracks with the same columns, one subtrack after the other.

    Attributes:
        columns: Columns of the frame that has the rows.
        rows: The rows, in order; None: all rows of the frame.
        depth: Depth of each row; empty without slices.
    """

    columns: FrameColumns
    rows: Int64s | None
    depth: NDArray[np.int32]

    def gather(self, column: str) -> NDArray[Any]:
        """Return the values of a column of numbers without nulls."""
        values, _ = self.columns.find_values(column)
        return values if self.rows is None else values.take(self.rows)

    def number(self, names: Sequence[str]) -> tuple[dict[str, Numbers], list[str]]:
        """Number the strings of some columns 1, 2, ... in order of appearance, one column after the other.

        Returns:
            The number of each row by column, 0 for null; and the strings in order of their numbers.
        """
        number_of: dict[str, Numbers] = {}
        texts: list[str] = []
        for name in names:
            codes, words = self.columns.find_words(name)
            codes = codes if self.rows is None else codes.take(self.rows)
            first, own = _number(codes)
            number_of[name] = np.where(own > 0, own + np.uint32(len(texts)), own) if texts else own
            texts += [words[code - 1] for code in codes[first].tolist()]
        return number_of, texts


def join_rows(subtracks: Sequence[Subtrack], frames: dict[int, FrameColumns]) -> DrawnRows:
    """Join the rows of subtracks with the same columns.

    Args:
        subtracks: The subtracks.
        frames: Columns of frames by their id; receives further ones.
    """
    parts = [one.content for one in subtracks if isinstance(one, SliceSubtrack)]
    arranged = [part for part in parts if isinstance(part, ArrangedSlices)]
    if len(arranged) == len(subtracks) and all(part.source is arranged[0].source for part in arranged):
        frame, rows = arranged[0].source, np.concatenate([part.rows for part in arranged])
        depth = np.concatenate([part.depth for part in arranged])
        if id(frame) not in frames:
            frames[id(frame)] = FrameColumns(frame)
        return DrawnRows(columns=frames[id(frame)], rows=rows, depth=depth)
    frame = pl.concat((subtrack_rows(one) for one in subtracks), rechunk=True)
    depth = frame["depth"].to_numpy() if parts else np.empty(0, dtype=np.int32)
    return DrawnRows(columns=FrameColumns(frame), rows=None, depth=depth)


def _number(codes: Numbers) -> tuple[Int64s, Numbers]:
    """Return the first row of each number from 1 on, and the number of each row.

    The code 0 has the number 0.
    """
    first, index = find_distinct(codes)
    nulls = int(len(first) > 0 and codes[first[0]] == 0)  # codes are in order
    order = np.argsort(first[nulls:]) + nulls
    number = np.zeros(len(first), dtype=np.uint32)
    number[order] = np.arange(1, len(order) + 1)
    return first[order], number[index]
