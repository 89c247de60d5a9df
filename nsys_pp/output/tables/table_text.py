"""Tables in text formats: the columns and rows of their view as text, and the lines below them."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import Column, FilledTable, View, describe_columns
from nsys_pp.output.tables.columns import TextColumn, format_columns
from nsys_pp.output.tables.file_names import cut_shared_starts
from nsys_pp.output.tables.names import clean
from nsys_pp.output.tables.rows import arrange_rows, find_sort_column, sort_rows


class ShownTable(Struct, frozen=True, kw_only=True):
    """A table as text.

    Attributes:
        columns: Its columns; () without rows to show.
        kinds: Kind of each row: "row", "rest" (of hidden rows) or "total".
        groups: Number of the group of each row.
        group_count: Leading columns that a group shows once.
        lines: Lines in place of rows.
        notes: Lines below the table.
        caption: Computation of its numbers; "" without any rows.
        hidden_count: Rows that the limit hides.
    """

    columns: tuple[TextColumn, ...] = ()
    kinds: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    group_count: int = 0
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    caption: str = ""
    hidden_count: int = 0


def arrange_table(
    filled: FilledTable,
    *,
    limit: int = 0,
    sort: str | None = None,
    unit: str | None = None,
    is_whole: bool = False,
) -> ShownTable:
    """Arrange a table for a text format; columns with only nulls are left out, but never all columns.

    Args:
        filled: The table.
        limit: Most rows of each group, and a third as many parts of each; 0: all. Totals are of all rows.
        sort: Column that sorts the rows, if the table has it; see `find_sort_column`.
        unit: Unit of all times; chosen by the values if None.
        is_whole: Include the rows that the view hides.
    """
    table, frame = filled.table, sort_table(filled, sort)
    if frame.is_empty():
        return ShownTable(notes=(clean(filled.missing or table.empty),))
    view = table.view or View(columns=tuple(frame.columns))
    if view.lines is not None:
        return ShownTable(lines=(*map(clean, view.lines(frame)),), caption=clean(table.caption))
    notes = [] if view.notes is None else view.notes(frame)
    derived = frame if view.derive is None else view.derive(frame)
    rows = derived if view.only is None or is_whole else derived.filter(view.only)
    if len(rows) < len(frame):
        share = f"{len(frame) - len(rows):,} of {len(frame):,}" if len(rows) else f"all {len(frame):,}"
        notes.insert(0, view.hidden.format(share))
    by_name = describe_columns(table)
    columns = _choose_columns(
        rows,
        [
            by_name[column] if isinstance(column, str) else column
            for column in view.columns
            if not isinstance(column, str) or column in rows.columns
        ],
    )
    caption = "; ".join([table.caption, *(column.note for column in columns if column.note)])
    if rows.is_empty():
        return ShownTable(notes=(*map(clean, notes),), caption=clean(caption))
    shown = arrange_rows(_spell(rows.select(column.name for column in columns)), table, limit=limit)
    if shown.hidden_count and not {"rest", "total"} & {*shown.kinds}:
        notes.append(f"{shown.hidden_count:,} more row{'s' * (shown.hidden_count > 1)}")
    texts = format_columns(shown.frame, columns, unit=unit, is_blank=[kind != "row" for kind in shown.kinds])
    texts, cut = cut_shared_starts(texts)
    notes += cut
    return ShownTable(
        columns=tuple(texts),
        kinds=tuple(shown.kinds),
        groups=tuple(shown.groups),
        group_count=len(shown.group_columns),
        notes=(*map(clean, notes),),
        caption=clean(caption),
        hidden_count=shown.hidden_count,
    )


def sort_table(filled: FilledTable, sort: str | None) -> pl.DataFrame:
    """Return the rows of a table, sorted by a column if the table has it."""
    frame = filled.frame
    column = None if sort is None else find_sort_column(frame.columns, sort)
    return frame if column is None else sort_rows(frame, column, filled.table)


def _choose_columns(rows: pl.DataFrame, columns: list[Column]) -> list[Column]:
    """Drop columns with only nulls, and optional ones with a single value; group columns are kept."""
    leading = True
    chosen = []
    for column in columns:
        leading = leading and column.is_group
        values = rows[column.name]
        is_empty = values.null_count() == len(values) and not (leading or column.null_text)
        is_same = column.is_optional and values.n_unique() < 2
        if not (is_empty or is_same):
            chosen.append(column)
    return chosen or columns


def _spell(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert categories to text; underscores in our own enumerations become blanks."""
    return frame.with_columns(
        pl.selectors.enum().cast(pl.String).str.replace_all("_", " "),
        pl.selectors.categorical().cast(pl.String),
    )
