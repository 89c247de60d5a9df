"""Columns of subtracks, prepared for encoding: strings as codes, and nulls as masks.

Most subtracks are small, and a query has a fixed cost, so the columns of all subtracks are prepared together.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.write.trace.strings import CODE, NULL, WORDS

_PRESENT = "\0present "  # not the name of any column


class SubtrackColumns(Struct, frozen=True, kw_only=True):
    """The columns of a subtrack, as they are and prepared for encoding.

    Attributes:
        rows: Rows of the subtrack.
        prepared: The codes of each string column. For each other column that is partly null: its values with 0 for null,
            and the mask of rows with a value.
    """

    rows: pl.DataFrame
    prepared: pl.DataFrame

    def has_values(self, column: str) -> bool:
        """Return whether a column has a value in any row."""
        return self.rows[column].null_count() < self.rows.height

    def values(self, column: str) -> pl.Series:
        """Return the values of a column, with codes for strings and 0 for other nulls."""
        return self.prepared[column] if column in self.prepared.columns else self.rows[column]

    def present(self, column: str) -> NDArray[np.bool_] | None:
        """Return the mask of rows with a value; None if all have one."""
        if not self.rows[column].null_count():
            return None
        if _PRESENT + column in self.prepared.columns:
            return self.prepared[_PRESENT + column].to_numpy()
        is_present: NDArray[np.bool_] = self.prepared[column].to_numpy() != NULL
        return is_present


def prepare_columns(subtracks: Iterable[pl.DataFrame]) -> list[SubtrackColumns]:
    """Prepare the columns of subtracks for encoding.

    Args:
        subtracks: Rows of each subtrack.

    Returns:
        One `SubtrackColumns` per subtrack, in order.
    """
    subtracks = list(subtracks)
    prepared = pl.collect_all([rows.lazy().select(CODE, *_fill_nulls(rows)) for rows in subtracks])
    return [
        SubtrackColumns(rows=rows, prepared=columns)
        for rows, columns in zip(subtracks, prepared, strict=True)
    ]


def _fill_nulls(rows: pl.DataFrame) -> list[pl.Expr]:
    """Build the expressions of filled values and masks, for columns that are partly null and do not hold strings."""
    queries = []
    for values in rows.iter_columns():
        if not isinstance(values.dtype, WORDS) and 0 < values.null_count() < rows.height:
            column, empty = pl.col(values.name), pl.lit(0).cast(values.dtype)
            queries += [column.fill_null(empty), column.is_not_null().alias(_PRESENT + values.name)]
    return queries
