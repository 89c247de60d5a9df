"""Tables made of any frame."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from nsys_pp.frames.table import Column, FilledTable, Table


def make_table(
    frame: pl.DataFrame,
    *,
    name: str = "things",
    title: str = "t",
    caption: str = "",
    groups: Collection[str] = (),
    symbols: Collection[str] = (),
    totals: tuple[str, ...] = (),
    is_nested: bool = False,
    is_fixed: bool = False,
    missing: str = "",
) -> FilledTable:
    """Make a table whose columns are those of the frame."""
    columns = tuple(
        Column(column, dtype, "", is_group=column in groups, is_symbol=column in symbols)
        for column, dtype in frame.schema.items()
    )
    table = Table(
        name=name,
        title=title,
        columns=columns,
        caption=caption,
        build=lambda: frame,
        totals=totals,
        is_nested=is_nested,
        is_fixed=is_fixed,
    )
    return FilledTable(table=table, frame=frame, missing=missing)
