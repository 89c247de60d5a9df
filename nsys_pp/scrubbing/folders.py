"""Exported folders of tables as originals of copies: their texts, facts and tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl

from nsys_pp.read.arrow import list_table_files, read_whole_table
from nsys_pp.read.names import FACT_TABLES


def list_folder_texts(path: Path) -> set[bytes]:
    """List the distinct texts and bytes of all tables of an exported folder.

    Raises:
        ReportError: A table cannot be read.
    """
    texts: set[bytes] = set()
    for file in list_table_files(path).values():
        for column in read_whole_table(file):
            for value in _as_texts(column).drop_nulls().unique():
                texts.add(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    texts.discard(b"")
    return texts


def read_folder_facts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the tables of facts.

    Raises:
        ReportError: A table cannot be read.
    """
    for name, file in list_table_files(path).items():
        if name not in FACT_TABLES:
            continue
        table = read_whole_table(file)
        if {"name", "value"} <= set(table.columns):
            yield from table.select(pl.col("name", "value").cast(pl.String, strict=False)).drop_nulls().rows()


def copy_folder_tables(path: Path, copy: Path, names: Collection[str]) -> None:
    """Copy some tables as they are into a SQLite file, which has none of them; names without a table are ignored.

    Raises:
        ReportError: A table cannot be read.
        sqlite3.Error: The copy cannot be written.
    """
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        for name, file in list_table_files(path).items():
            table = read_whole_table(file)
            if name not in names or not table.width:
                continue
            plain = table.select(_as_plain(column) for column in table)
            columns = ", ".join(map(_quote, plain.columns))
            connection.execute(f"CREATE TABLE {_quote(name)} ({columns})")
            places = ", ".join("?" * plain.width)
            connection.executemany(f"INSERT INTO {_quote(name)} VALUES ({places})", plain.iter_rows())


def _as_texts(column: pl.Series) -> pl.Series:
    """Return the texts and bytes of a column, also inside lists and structs; none for numbers."""
    if isinstance(column.dtype, pl.Struct):
        fields = [_as_texts(field).cast(pl.String, strict=False) for field in column.struct.unnest()]
        return pl.concat([field.rename("") for field in fields]) if fields else pl.Series("", [], pl.String)
    if isinstance(column.dtype, pl.List | pl.Array):
        return _as_texts(column.explode())
    if column.dtype in (pl.String, pl.Binary):
        return column
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    return pl.Series(column.name, [], dtype=pl.String)


def _as_plain(column: pl.Series) -> pl.Series:
    """Return a column with values that SQLite stores: numbers of 64 bits, texts, bytes."""
    if column.dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return column.cast(pl.Int64, strict=False)
    if column.dtype.is_float() or column.dtype == pl.Binary:
        return column
    if column.dtype.is_nested():
        return pl.Series(column.name, [None if value is None else str(value) for value in column], pl.String)
    return column.cast(pl.String)


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
