"""Columns of subtracks, prepared for encoding: strings as numbers, and nulls as masks.

The subtracks of many tracks are rows of the same frame, so its columns are prepared once. A query of polars has a fixed cost,
so the columns of large frames are prepared together, and small ones mostly without a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from nsys_pp.arrays.codes import copy_codes, split_codes
from nsys_pp.arrays.columns import split_nulls
from nsys_pp.arrays.names import Texts, split_texts
from nsys_pp.arrays.scratch import is_paged
from nsys_pp.arrays.scratch_frames import build_blocks
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.output.trace.drawing import ArrangedSlices, SliceSubtrack, Subtrack
from nsys_pp.output.trace.strings import NULL, WORDS, Strings, Words, number_columns, number_words
from nsys_pp.output.trace.tree import subtrack_rows

_PRESENT = "\0present "  # not the name of any column
_FEW_ROWS = 20_000  # of a frame whose columns are prepared without a query


class Source:
    """A frame with the rows of subtracks, as it is and prepared for encoding.

    Args:
        frame: The frame.
        prepared: The codes of string columns, unless they are all null; for each other column that is partly null: its
            values with 0 for null, and the mask of rows with a value. Without columns for a small frame.
    """

    def __init__(self, frame: pl.DataFrame, prepared: pl.DataFrame) -> None:
        self.frame = frame
        self.dtypes = dict(zip(frame.columns, frame.dtypes, strict=True))
        self.null_count = {column.name: column.null_count() for column in frame.iter_columns()}
        self._prepared = prepared
        self._arrays: dict[str, NDArray[Any]] = {}
        self._words: dict[str, Words] = {}
        self.plan: Any = None  # what an encoder made of the columns, for all subtracks

    def array(self, column: str) -> NDArray[Any]:
        """Return the values of a column other than strings; any value for null."""
        if column not in self._arrays:
            values = self.frame.get_column(column)
            mask = None
            if _PRESENT + column in self._prepared.columns:
                values, mask = self._prepared.get_column(column), self._prepared.get_column(_PRESENT + column)
            if values.dtype.is_float():
                values = values.cast(pl.Float64)
            if mask is None:
                self._arrays[column], is_present = split_nulls(values)
            else:
                self._arrays[column], is_present = values.to_numpy(), mask.to_numpy()
            if is_present is not None:
                self._arrays[_PRESENT + column] = is_present
        return self._arrays[column]

    def present(self, column: str) -> Bools | None:
        """Return the mask of the rows with a value, of a column other than strings; None if all have one."""
        self.array(column)
        return self._arrays.get(_PRESENT + column)

    def words(self, column: str) -> Words:
        """Return a column of strings."""
        if column not in self._words:
            words, codes = self.frame.get_column(column), None
            if column not in self._prepared.columns:
                codes = _copy_words(words)
                if codes is None:  # one query for all columns
                    self._prepared = self.frame.select(_number_words(self.frame))
            if codes is None:
                codes = self._prepared.get_column(column).to_numpy()
            self._words[column] = Words(words, codes.astype(np.uint32, copy=False))
        return self._words[column]

    def has_values(self, column: str) -> bool:
        """Return whether a column has a value in any row."""
        return self.null_count[column] < self.frame.height


def _copy_words(words: pl.Series) -> NDArray[np.unsignedinteger[Any]] | None:
    """Copy the codes of a column of strings, `NULL` for null; None where they must be queried."""
    dtype = words.dtype
    codes = copy_codes(words, dtype)
    if codes is not None or (split := split_codes(words, dtype)) is None:
        return codes
    codes, is_null = split
    return np.where(is_null, np.uint32(NULL), codes)


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
        """Return the values of a column of numbers without nulls."""
        values = self.source.array(column)
        return values if self.rows is None else values.take(self.rows)

    def number(self, groups: Sequence[Sequence[str]]) -> tuple[dict[str, NDArray[np.uint32]], list[Strings]]:
        """Number the strings of groups of columns 1, 2, ... in order of appearance, the columns of a group one after the other.

        Returns:
            The number of each row by column, 0 for null; and per group its strings in order of their numbers.
        """
        columns = [(column, number) for number, group in enumerate(groups) for column in group]
        words = [self.source.words(column) for column, _ in columns]
        numbers, used = number_columns(words, self.rows, [group for _, group in columns])
        texts: list[Strings] = []
        for number in range(len(groups)):
            of_group = [
                own.list_texts(codes)
                for own, codes, (_, group) in zip(words, used, columns, strict=True)
                if group == number
            ]
            texts.append(_join_texts(of_group))
        return {column: own for (column, _), own in zip(columns, numbers, strict=True)}, texts


def _join_texts(texts: Iterable[Strings]) -> Strings:
    texts = [some for some in texts if len(some)]
    if not texts:
        return []
    if len(texts) == 1:
        return texts[0]
    if all(isinstance(some, list) for some in texts):
        return [text for some in texts for text in some if text is not None]
    return Texts(pl.concat([column for some in texts for column in split_texts(some)]))


def prepare_columns(
    batches: Sequence[Sequence[Subtrack]], sources: dict[int, Source] | None = None
) -> list[SubtrackColumns]:
    """Prepare the columns of subtracks for encoding.

    Args:
        batches: Batches of subtracks with the same columns.
        sources: Frames that were prepared before, by id; receives further ones. Default: none.

    Returns:
        One `SubtrackColumns` per batch, in order.
    """
    joined = [_join(batch) for batch in batches]
    frames = {id(frame): frame for frame, _, _ in joined}
    sources = {} if sources is None else sources
    fresh = {key: frame for key, frame in frames.items() if key not in sources}
    large = {key: frame for key, frame in fresh.items() if frame.height > _FEW_ROWS}
    prepared = dict(zip(large, _prepare_frames(list(large.values())), strict=True))
    nothing = pl.DataFrame()
    for key, frame in fresh.items():
        sources[key] = Source(frame, prepared.get(key, nothing))
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
    if len(batch) == 1:
        frame = subtrack_rows(batch[0]).rechunk()
    else:
        frame = pl.concat((subtrack_rows(subtrack) for subtrack in batch), rechunk=True)
    return frame, None, frame["depth"].to_numpy() if parts else np.empty(0, dtype=np.int32)


def _number_words(frame: pl.DataFrame) -> list[pl.Expr]:
    """Build the expressions of the codes of string columns with values (`number_words`)."""
    return [
        number_words(column)
        for column in frame.iter_columns()
        if isinstance(column.dtype, WORDS) and column.null_count() < len(column)
    ]


def _prepare(rows: pl.DataFrame) -> list[pl.Expr]:
    """Build the expressions of codes, filled values and masks, for columns that cannot be encoded as they are."""
    queries = _number_words(rows)
    for values in rows.iter_columns():
        column, nulls = pl.col(values.name), values.null_count()
        if 0 < nulls < rows.height and not isinstance(values.dtype, WORDS):
            empty = pl.lit(0).cast(values.dtype)
            queries += [column.fill_null(empty), column.is_not_null().alias(_PRESENT + values.name)]
    return queries
