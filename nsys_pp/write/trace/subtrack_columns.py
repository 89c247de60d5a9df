"""Columns of subtracks, prepared for encoding: strings as codes, and nulls as masks.

The subtracks of many tracks are rows of the same frame, so its columns are prepared once. The frame of a small one has a
few rows, and a query has a fixed cost, so the columns of all frames are prepared together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.scratch import is_paged
from nsys_pp.arrays.scratch_frames import build_blocks
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.write.trace.drawing import ArrangedSlices, SliceSubtrack, Subtrack
from nsys_pp.write.trace.strings import NULL, WORDS, number_words
from nsys_pp.write.trace.tree import subtrack_rows

_PRESENT = "\0present "  # not the name of any column


class Source:
    """A frame with the rows of subtracks, as it is and prepared for encoding.

    Args:
        frame: The frame.
        prepared: The codes of each string column, unless it is all null. For each other column that is partly null: its values with 0 for null, and the mask of rows with a value.
    """

    def __init__(self, frame: pl.DataFrame, prepared: pl.DataFrame) -> None:
        self.frame = frame
        self.null_count = {column.name: column.null_count() for column in frame.iter_columns()}
        self._prepared = prepared
        self._arrays: dict[str, NDArray[Any]] = {}

    def array(self, column: str) -> NDArray[Any]:
        """Return the values of a column, with codes for strings and 0 for other nulls."""
        if column not in self._arrays:
            is_prepared = column in self._prepared.columns
            values = (self._prepared if is_prepared else self.frame).get_column(column)
            if values.dtype.is_float():
                values = values.cast(pl.Float64)
            self._arrays[column] = values.to_numpy()
        return self._arrays[column]

    def mask(self, column: str) -> Bools:
        """Return the mask of the rows with a value, of a column with nulls."""
        name = _PRESENT + column
        if name not in self._arrays:
            if name in self._prepared.columns:
                self._arrays[name] = self._prepared[name].to_numpy()
            elif self.null_count[column] == len(self.frame):
                self._arrays[name] = np.zeros(len(self.frame), dtype=bool)
            else:
                self._arrays[name] = self._prepared[column].to_numpy() != NULL
        return self._arrays[name]


class SubtrackColumns(Struct, frozen=True, kw_only=True):
    """Columns of the rows of subtracks, one subtrack after the other.

    Attributes:
        source: The frame that has the rows.
        rows: The rows, in order; None: all rows of the source.
        depth: Depth of each row; empty without slices.
    """

    source: Source
    rows: Int64s | None
    depth: NDArray[np.int32]

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.source.frame) if self.rows is None else len(self.rows)

    def gather(self, column: str) -> NDArray[Any]:
        """Return the values of a column: codes for strings, 0 for other nulls."""
        values = self.source.array(column)
        return values if self.rows is None else values.take(self.rows)

    def has_values(self, column: str) -> bool:
        """Return whether a column has a value in any row."""
        null_count, height = self.source.null_count[column], self.source.frame.height
        if self.rows is None or null_count in (0, height):
            return null_count < height
        return bool(self._mask(column).any())

    def present(self, column: str) -> Bools | None:
        """Return the mask of rows with a value; None if all have one."""
        if not self.source.null_count[column]:
            return None
        mask = self._mask(column)
        return None if mask.all() else mask

    def _mask(self, column: str) -> Bools:
        mask = self.source.mask(column)
        return mask if self.rows is None else mask.take(self.rows)


def prepare_columns(batches: Sequence[Sequence[Subtrack]]) -> list[SubtrackColumns]:
    """Prepare the columns of subtracks for encoding.

    Args:
        batches: Batches of subtracks with the same columns.

    Returns:
        One `SubtrackColumns` per batch, in order.
    """
    joined = [_join(batch) for batch in batches]
    frames = {id(frame): frame for frame, _, _ in joined}
    prepared = _prepare_frames(list(frames.values()))
    sources = {
        key: Source(frame, columns) for (key, frame), columns in zip(frames.items(), prepared, strict=True)
    }
    return [
        SubtrackColumns(source=sources[id(frame)], rows=rows, depth=depth) for frame, rows, depth in joined
    ]


def _prepare_frames(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Prepare the columns of frames: together, or block by block where working arrays are in files."""
    if not is_paged():
        return pl.collect_all([frame.lazy().select(_prepare(frame)) for frame in frames])
    # polars forgets categories that no column has, and numbers them again
    words = pl.Series(["word"], dtype=pl.Categorical())
    prepared = [build_blocks(len(frame), partial(_prepare_block, frame, _prepare(frame))) for frame in frames]
    del words
    return prepared


def _prepare_block(frame: pl.DataFrame, queries: list[pl.Expr], first: int, stop: int) -> pl.DataFrame:
    return frame[first:stop].select(queries)


def _join(batch: Sequence[Subtrack]) -> tuple[pl.DataFrame, Int64s | None, NDArray[np.int32]]:
    """Return a frame with the rows of subtracks, their rows there (None: all), and their depths."""
    parts = [subtrack.content for subtrack in batch if isinstance(subtrack, SliceSubtrack)]
    arranged = [part for part in parts if isinstance(part, ArrangedSlices)]
    if len(arranged) == len(batch) and all(part.source is arranged[0].source for part in arranged):
        if len(arranged) == 1:
            return arranged[0].source, arranged[0].rows, arranged[0].depth
        rows = np.concatenate([part.rows for part in arranged])
        return arranged[0].source, rows, np.concatenate([part.depth for part in arranged])
    frame = pl.concat((subtrack_rows(subtrack) for subtrack in batch), rechunk=True)
    return frame, None, frame["depth"].to_numpy() if parts else np.empty(0, dtype=np.int32)


def _prepare(rows: pl.DataFrame) -> list[pl.Expr]:
    """Build the expressions of codes, filled values and masks, for columns that cannot be encoded as they are."""
    queries = []
    for values in rows.iter_columns():
        column, nulls = pl.col(values.name), values.null_count()
        if nulls == rows.height:
            continue
        if isinstance(values.dtype, WORDS):
            is_plain = not nulls and isinstance(values.dtype, pl.Categorical)
            queries.append(column.to_physical() if is_plain else number_words(column))
        elif nulls:
            empty = pl.lit(0).cast(values.dtype)
            queries += [column.fill_null(empty), column.is_not_null().alias(_PRESENT + values.name)]
    return queries
