"""A file format of tables, and the content for its renderer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.tables.columns import convert_times
from nsys_pp.output.tables.rows import limit_rows
from nsys_pp.output.tables.table_text import sort_table


class Content(Struct, frozen=True, kw_only=True):
    """Tables to be written, and their rows and units.

    Attributes:
        tables: Tables with their rows, in order.
        limit: Most rows of each group, and a third as many parts of each; 0: all.
        sort: Column that sorts the rows, where a table has it; see `find_sort_column`.
        unit: Unit of all times. None: nanoseconds in data formats, chosen by the values in text formats.
        is_single: It is a single table, not a list of tables, which may have length one.
    """

    tables: Sequence[FilledTable]
    limit: int = 0
    sort: str | None = None
    unit: str | None = None
    is_single: bool = False


class Format(Struct, frozen=True, kw_only=True):
    """A file format of tables.

    Attributes:
        name: Value of `--format`.
        suffixes: File name extensions; files in a folder have the first one.
        holds_many: A file can contain several tables.
        write: Function that writes content to a new file.
        text: Function that formats content as text; None: the format is binary and cannot be printed.
        is_data: It has exact values under the names of columns; otherwise headings and readable units.
    """

    name: str
    suffixes: tuple[str, ...]
    holds_many: bool
    write: Callable[[Content, Path], None]
    text: Callable[[Content], str] | None = None
    is_data: bool = True


def select_data(content: Content) -> dict[str, pl.DataFrame]:
    """Return the rows of each table as data: sorted, limited, times in the requested unit, categories as strings.

    Tables that could not be built have no rows.
    """
    return {name: name_categories(frame) for name, frame in _select_rows(content).items()}


def select_frame(content: Content) -> pl.DataFrame:
    """Return the rows of the only table, for formats that hold a single one.

    Raises:
        ValueError: There are several tables, or none.
    """
    return name_categories(select_categorical_frame(content))


def select_categorical_frame(content: Content) -> pl.DataFrame:
    """Return the rows of the only table as in `select_frame`, with categories.

    Raises:
        ValueError: There are several tables, or none.
    """
    frames = _select_rows(content)
    if len(frames) != 1:
        raise ValueError(f"a file of this format holds one table, not {len(frames)}")
    return next(iter(frames.values()))


def name_categories(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with strings in place of categories."""
    return frame.with_columns(pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String))


def _select_rows(content: Content) -> dict[str, pl.DataFrame]:
    frames = {}
    for filled in content.tables:
        if filled.missing:
            continue
        frame = limit_rows(sort_table(filled, content.sort), filled.table, limit=content.limit)
        frames[filled.table.name] = frame if content.unit is None else convert_times(frame, content.unit)
    return frames
