"""From what an export holds to what is read of it, and from their columns to our frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import polars as pl

from nsys_pp.raw import SCHEMAS, Group
from nsys_pp.read.tables import (
    COUNTED,
    ENVIRONMENT_ROWS,
    LAUNCHER_VARIABLE,
    ROW_ID,
    TABLES,
    Column,
    Source,
    Table,
)

Catalog = Mapping[str, Sequence[str]]
"""The tables of an export with their columns."""


def plan_sources(catalog: Catalog, need: frozenset[Group], *, has_row_id: bool) -> list[Source]:
    """Say which table of the export fills which frame, and by which columns.

    Args:
        catalog: The tables of the export.
        need: The groups of tables and columns that are wanted.
        has_row_id: Whether rows of this kind of export know where they lie in their table.
    """
    sources = []
    for table in TABLES:
        name = _present_name(table, catalog)
        useful = {group for group in need if table.useless_without.get(group, name) in catalog}
        if name is None or not _is_wanted(table.groups, useful):
            continue
        present = {*catalog[name], ROW_ID} if has_row_id else set(catalog[name])
        columns = {
            ours: theirs
            for ours, column in table.columns.items()
            if _is_wanted(column.groups, useful)
            and (theirs := next((n for n in column.names if n in present), None)) is not None
        }
        sources.append(Source(table, name, columns))
    return sources


def name_recorded(catalog: Catalog) -> dict[str, str]:
    """Give their name of every table that the export has and we have a name for, by our name."""
    present = ((table.frame, _present_name(table, catalog)) for table in (*TABLES, *COUNTED))
    skip = {"payloads", "facts", "launcher", "strings"}  # not recordings of their own
    return {frame: name for frame, name in present if name is not None and frame not in skip}


def assemble(parts: Iterable[tuple[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Make every raw frame out of its parts, in the order in which they come.

    Args:
        parts: Names of raw frames with rows of theirs, from `shape_rows`.

    Returns:
        Every frame of `nsys_pp.raw.SCHEMAS`, with its schema; those that were not read are empty.
    """
    by_frame: dict[str, list[pl.DataFrame]] = {}
    for name, rows in parts:
        by_frame.setdefault(name, []).append(rows)
    return {
        name: pl.concat(by_frame[name]) if name in by_frame else schema.to_frame()
        for name, schema in SCHEMAS.items()
    }


def shape_rows(source: Source, frame: pl.DataFrame) -> pl.DataFrame:
    """Translate words, pick the rows that count, and bring the columns to the raw schema."""
    table, schema = source.table, SCHEMAS[source.table.frame]
    if table.frame == "launcher":
        return _keep_launcher_variables(frame)
    if table.rows_named:
        frame = frame.filter(pl.col("name").is_in(list(table.rows_named)))
        frame = frame.with_columns(pl.col("name").replace_strict(table.rows_named, return_dtype=pl.String))
    frame = frame.select(
        _fit(column, table.columns.get(column), dtype, frame) for column, dtype in schema.items()
    )
    if table.frame == "nvtx":
        return frame.filter(pl.col("kind").is_not_null())
    return frame


def rows_wanted(table: Table) -> list[str]:
    """Give the names of the rows to read of a table of names and values; empty for all rows."""
    return list(table.rows_named)


def _is_wanted(groups: tuple[Group, ...], need: Set[Group]) -> bool:
    return not groups or not need.isdisjoint(groups)


def _present_name(table: Table, catalog: Catalog) -> str | None:
    for name in table.names:
        if name in catalog and set(table.must_have) <= set(catalog[name]):
            return name
    return None


def _fit(name: str, column: Column | None, dtype: pl.DataType, frame: pl.DataFrame) -> pl.Expr:
    """Bring one column to its type: wrap unsigned ids, translate words, null where it is absent."""
    if name not in frame.columns:
        return pl.lit(None, dtype=dtype).alias(name)
    expression, given = pl.col(name), frame.schema[name]
    if column is not None and column.words is not None:
        words: pl.Expr = expression.replace_strict(column.words, default=None, return_dtype=dtype)
        if column.words_beyond is not None:
            first, word = column.words_beyond
            words = pl.when(expression >= first).then(pl.lit(word, dtype=dtype)).otherwise(words)
        return words.alias(name)
    if given == pl.UInt64 and dtype == pl.Int64:
        return expression.reinterpret(signed=True)
    if given == pl.Binary and dtype == pl.String:
        return expression.bin.encode("hex")
    if dtype == pl.String:
        text = expression.cast(pl.String)
        return pl.when(text != "").then(text).alias(name)
    # what does not fit (a number of 40 bits for a device) is as good as absent
    return expression.cast(dtype, strict=False)


def _keep_launcher_variables(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep the variables of the allow-list whose values are what they should be."""
    return (
        rows.filter(pl.col("name").is_in(list(ENVIRONMENT_ROWS)))
        .select(pl.col("value").str.split(";"))
        .explode("value")
        .select(pl.col("value").str.extract_groups(LAUNCHER_VARIABLE).struct.unnest())
        .select(name=pl.coalesce("1", "3"), value=pl.coalesce("2", "4"))
        .drop_nulls()
    )
