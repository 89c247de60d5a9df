"""Columns of subtracks, as far as the encoding of numbers needs them otherwise than subtracks have them.

Subtracks are many and small. All of a drawing are asked about together: one by one, most of the time would go
into asking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.write.trace.strings import CODE, NULL, WORDS

_PRESENT = "\0present "  # no column is called so


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtrackColumns:
    """The columns of a subtrack, and what was asked about them.

    Attributes:
        rows: The subtrack's rows.
        told: Codes of words; of other columns that have some nulls, the values, with 0 for null, and which
            rows have one.
    """

    rows: pl.DataFrame
    told: pl.DataFrame

    def has_any(self, column: str) -> bool:
        """Say whether a column has a value in any row."""
        return self.rows[column].null_count() < self.rows.height

    def values(self, column: str) -> pl.Series:
        """Give the values of a column: 0 for null, and for words their codes."""
        return self.told[column] if column in self.told.columns else self.rows[column]

    def present(self, column: str) -> NDArray[np.bool_] | None:
        """Say which rows have a value; None: all."""
        if not self.rows[column].null_count():
            return None
        if _PRESENT + column in self.told.columns:
            return self.told[_PRESENT + column].to_numpy()
        is_there: NDArray[np.bool_] = self.told[column].to_numpy() != NULL
        return is_there


def ask_columns(subtracks: Iterable[pl.DataFrame]) -> list[SubtrackColumns]:
    """Ask about the columns of subtracks.

    Args:
        subtracks: The rows of each.

    Returns:
        A record for each, in order.
    """
    subtracks = list(subtracks)
    told = pl.collect_all([rows.lazy().select(CODE, *_gaps(rows)) for rows in subtracks])
    return [SubtrackColumns(rows=rows, told=one) for rows, one in zip(subtracks, told, strict=True)]


def _gaps(rows: pl.DataFrame) -> list[pl.Expr]:
    """Ask about columns that are no words, and have some nulls."""
    asked = []
    for values in rows.iter_columns():
        if not isinstance(values.dtype, WORDS) and 0 < values.null_count() < rows.height:
            column, nothing = pl.col(values.name), pl.lit(0).cast(values.dtype)
            asked += [column.fill_null(nothing), column.is_not_null().alias(_PRESENT + values.name)]
    return asked
