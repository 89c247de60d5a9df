"""A file format of tables, and the content for its renderer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.frames.table import FilledTable
from nsys_pp.write.tables.columns import convert_times
from nsys_pp.write.tables.people import sort_table
from nsys_pp.write.tables.rows import limit_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Tables to be written, and their rows and units.

    Attributes:
        tables: Tables with their rows, in order.
        limit: Most rows of each group, and a third as many parts of each; 0: all.
        sort: Column that sorts the rows, where a table has it; see `find_sort_column`.
        unit: Unit of all times. None: nanoseconds in data, chosen by the values for people.
        is_single: It is one table by itself, not a list of tables that may have one.
    """

    tables: Sequence[FilledTable]
    limit: int = 0
    sort: str | None = None
    unit: str | None = None
    is_single: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format of tables.

    Attributes:
        name: Name of the option's value.
        suffixes: File name endings; the first one is that of files in a folder.
        holds_many: A file can hold several tables.
        write: Writes content to a new file.
        text: Formats content as text; None: the format is binary, and cannot be printed.
        is_data: Exact values under the names of columns; else the headings and units of people.
    """

    name: str
    suffixes: tuple[str, ...]
    holds_many: bool
    write: Callable[[Content, Path], None]
    text: Callable[[Content], str] | None = None
    is_data: bool = True


def select_data(content: Content) -> dict[str, pl.DataFrame]:
    """Return the rows of each table as data: sorted, limited, times in the unit asked for, categories as strings.

    Tables that could not be built have no rows.
    """
    frames = {}
    for filled in content.tables:
        if filled.missing:
            continue
        frame = limit_rows(sort_table(filled, content.sort), filled.table, limit=content.limit)
        frame = frame if content.unit is None else convert_times(frame, content.unit)
        frames[filled.table.name] = frame.with_columns(
            pl.selectors.categorical().cast(pl.String), pl.selectors.enum().cast(pl.String)
        )
    return frames


def select_frame(content: Content) -> pl.DataFrame:
    """Return the rows of the one table of a format that holds no more.

    Raises:
        ValueError: There are several tables, or none.
    """
    frames = select_data(content)
    if len(frames) != 1:
        raise ValueError(f"a file of this format holds one table, not {len(frames)}")
    return next(iter(frames.values()))
