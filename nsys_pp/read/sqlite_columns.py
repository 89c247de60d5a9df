"""Columns of a table whose rows come block by block: numbers go to where they stay, without a copy of all at the end."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import split_nulls
from nsys_pp.arrays.scratch import GrowingColumn
from nsys_pp.arrays.scratch_frames import as_words
from nsys_pp.arrays.stored_texts import build_names
from nsys_pp.arrays.types import Bools


class Columns:
    """Rows that are added block by block.

    A column of numbers is one array for all rows, which polars shares, in a scratch if there is one
    (`nsys_pp.arrays.scratch`). It takes memory as it is filled, and none without values. Other columns are kept in pieces.

    Args:
        most: Number of rows that are expected at most; more are added more slowly.
        repeated: Columns of texts, most of which repeat: names, whose codes are numbers; with their types (`NAME`, `StoredName`).
    """

    def __init__(self, most: int, repeated: Mapping[str, pl.DataType] | None = None) -> None:
        self._most = most
        self._repeated = repeated or {}
        self._words: pl.Series | None = None  # polars forgets categories that no column has
        self._count = 0
        self._pieces: dict[str, list[pl.Series]] = {}
        self._values: dict[str, GrowingColumn] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._nulls: dict[str, list[tuple[int, Bools | None, int]]] = {}  # masks; None: all
        self._empty: pl.DataFrame | None = None

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows; all blocks have the same columns."""
        if self._empty is None:
            self._empty = rows.clear()
        for series in rows.iter_columns():
            if series.dtype.is_numeric():
                self._put(series)
            elif series.name in self._repeated:
                words = build_names(series, self._repeated[series.name])
                self._words = words.clear()
                self._put(words.to_physical())
            else:
                self._pieces.setdefault(series.name, []).append(series)
        self._count += rows.height

    def build(self) -> pl.DataFrame:
        """Return all rows; to be called once, after rows were added."""
        assert self._empty is not None
        columns = [pl.concat(pieces) for pieces in self._pieces.values()]
        columns += [self._finish(name) for name in [*self._values]]
        schema = {**self._empty.schema, **self._repeated}
        if not columns:
            name, dtype = next(iter(schema.items()))
            columns.append(pl.Series(name, [None], dtype=dtype).new_from_index(0, self._count))
        filled = {column.name for column in columns}
        nulls = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in filled]
        return pl.DataFrame(columns).with_columns(nulls)[[*schema]]  # nulls that need no memory

    def _put(self, series: pl.Series) -> None:
        """Add the values of a block; nothing here takes a query, which takes longer than its work."""
        name, nulls, first = series.name, series.null_count(), self._count
        if nulls == len(series):
            self._nulls.setdefault(name, []).append((first, None, nulls))
            return
        values, is_present = split_nulls(series)
        if is_present is not None:
            self._nulls.setdefault(name, []).append((first, ~is_present, nulls))
        if name not in self._values:
            self._dtypes[name] = pl.Series([], dtype=series.dtype).to_numpy().dtype
            self._values[name] = GrowingColumn(self._most, self._dtypes[name])
        self._values[name].put(first, values.astype(self._dtypes[name], copy=False))

    def _finish(self, name: str) -> pl.Series:
        values = self._values.pop(name).build(self._count)
        blocks = self._nulls.pop(name, [])
        for first, mask, count in blocks:
            if mask is None and values.flags.writeable:
                values[first : first + count] = 0  # never written
        series = pl.Series(name, values)
        if not blocks:
            return as_words(series, self._repeated[name]) if name in self._repeated else series
        is_null = np.zeros(self._count, dtype=np.bool_)
        for first, mask, count in blocks:
            if mask is None:
                is_null[first : first + count] = True
            else:
                is_null[first : first + len(mask)] = mask
        series = series.set(pl.Series(is_null), None)
        return as_words(series, self._repeated[name]) if name in self._repeated else series


class OrderedColumns:
    """Columns whose blocks several threads add, in any order: each thread adds the blocks that are next.

    Args:
        columns: Without rows.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._waiting: dict[int, pl.DataFrame] = {}
        self._next = 0
        self._lock = Lock()

    def add(self, number: int, rows: pl.DataFrame) -> None:
        """Add a block, once those before it are added; numbers begin at 0."""
        self._waiting[number] = rows
        while self._next in self._waiting and self._lock.acquire(blocking=False):
            try:
                while (block := self._waiting.pop(self._next, None)) is not None:
                    self._columns.add(block)
                    self._next += 1
            finally:
                self._lock.release()

    def build(self) -> pl.DataFrame:
        """Return all rows; to be called once, after all blocks were added."""
        assert not self._waiting
        return self._columns.build()
