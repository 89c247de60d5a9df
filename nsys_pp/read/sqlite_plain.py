"""Tables of plain SQLite files, read from their pages without SQLite, in a third of its time.

`read_table` equals a query of all rows, or returns None: then SQLite reads the table (`nsys_pp.read.sqlite`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.raw import SCHEMAS
from nsys_pp.read.plan import shape_rows
from nsys_pp.read.sqlite_pages import PageFile, list_leaves, open_pages, read_blocks
from nsys_pp.read.sqlite_query import column_types
from nsys_pp.read.sqlite_records import Kind, Values, Wanted, read_records
from nsys_pp.read.table import Source
from nsys_pp.read.tables import ROW_ID

_TASK_BYTES = 12 << 20  # of pages that one thread reads at a time
_NARROW: dict[pl.DataType, npt.DTypeLike] = {
    pl.Int8(): np.int8,
    pl.UInt8(): np.uint8,
    pl.Int16(): np.int16,
    pl.UInt16(): np.uint16,
    pl.Int32(): np.int32,
    pl.UInt32(): np.uint32,
}
_ROW_ID = Wanted(index=-1, kind="integer")


class Layout(Struct, frozen=True):
    """Place of a table's rows.

    Attributes:
        root: Root page.
        columns: Position of each column in the records.
        row_id: The column that is another name of the row id; None without one.
    """

    root: int
    columns: Mapping[str, int]
    row_id: str | None


@contextmanager
def open_plain(path: Path) -> Iterator[PageFile | None]:
    """Open a file for `read_table`; None if it is not plain."""
    file = open_pages(path)
    try:
        yield file
    finally:
        if file is not None:
            os.close(file.descriptor)


def read_table(
    file: PageFile, source: Source, layout: Layout, executor: Executor
) -> list[pl.DataFrame] | None:
    """Read the needed columns of a table.

    Args:
        file: From `open_plain`.
        source: The table.
        layout: Its place.
        executor: Threads that decode pages.

    Returns:
        Parts of the rows in order of row ids, each from `shape_rows`; None where the table is unusual or damaged.
    """
    if source.table.any_of or source.table.rows_named:
        return None
    kinds = column_types(source)
    schema = SCHEMAS[source.table.frame]
    wanted = {
        ours: _describe(layout, theirs, kinds[ours], _NARROW.get(schema[ours], np.int64))
        for ours, theirs in source.columns.items()
    }
    leaves = list_leaves(file, layout.root)
    if leaves is None or any(column is None for column in wanted.values()):
        return None
    columns = [column for column in wanted.values() if column is not None]
    count = max(1, _TASK_BYTES // file.page_bytes)
    tasks = [
        executor.submit(partial(_read_leaves, file, leaves[first : first + count], columns))
        for first in range(0, len(leaves), count)
    ]
    frames, last_row = [], None
    for task in tasks:
        values = task.result()
        if values is None:
            return None
        (row_id, *others) = values
        assert isinstance(row_id.values, np.ndarray)
        if len(row_id.values):
            if last_row is not None and row_id.values[0] <= last_row:
                return None
            last_row = row_id.values[-1]
        named = zip(wanted, others, strict=True)
        frames.append(shape_rows(source, pl.DataFrame([_build(name, each) for name, each in named])))
    return frames


def _describe(layout: Layout, theirs: str, dtype: pl.DataType, narrow: npt.DTypeLike) -> Wanted | None:
    """Describe a column to read; None if the records have no such column."""
    if theirs == ROW_ID:
        return _ROW_ID
    kind: Kind = "text" if dtype == pl.String else "real" if dtype.is_float() else "integer"
    index = layout.columns.get(theirs)
    if index is None:
        return None
    return Wanted(index, kind, is_row_id=theirs == layout.row_id, dtype=narrow)


def _read_leaves(file: PageFile, leaves: Int64s, columns: Sequence[Wanted]) -> list[Values] | None:
    """Read row ids and columns of the rows of leaf pages."""
    parts = []
    for block in read_blocks(file, leaves):
        part = None if block is None else read_records(file, block, [_ROW_ID, *columns])
        if part is None:
            return None
        parts.append(part)
    return [_join(column) for column in zip(*parts, strict=True)]


def _join(parts: Sequence[Values]) -> Values:
    """Join the values of one column."""
    if isinstance(parts[0].values, pl.Series):
        return Values(pl.concat([part.values for part in parts if isinstance(part.values, pl.Series)]), None)
    values = np.concatenate([part.values for part in parts])
    if all(part.is_null is None for part in parts):
        return Values(values, None)
    masks = [np.zeros(len(part.values), np.bool_) if part.is_null is None else part.is_null for part in parts]
    return Values(values, np.concatenate(masks))


def _build(name: str, column: Values) -> pl.Series:
    series = pl.Series(name, column.values)
    return series if column.is_null is None else series.set(pl.Series(column.is_null), None)
