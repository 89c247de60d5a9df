"""Queries: columns of a range of rows, in types that need no guess."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from nsys_pp.frames.raw import SCHEMAS
from nsys_pp.read.plan import rows_to_read
from nsys_pp.read.table import Source
from nsys_pp.read.tables import ROW_ID


class Chunk(Struct, frozen=True):
    """A range of rows of one table."""

    source: Source
    has_row_id: bool  # False for tables WITHOUT ROWID
    first_row: int | None  # first row id; None: no limit
    last_row: int | None  # last row id; None: no limit
    cells: int  # approximate number of cells to read


def column_types(source: Source) -> dict[str, pl.DataType]:
    """Return the type in which each column is queried."""
    schema, columns = SCHEMAS[source.table.frame], source.table.columns
    return {
        ours: pl.Int64() if columns[ours].words is not None or schema[ours].is_integer() else schema[ours]
        for ours in source.columns
    }


def write_query(chunk: Chunk, *, exact: bool) -> str:
    """Write the query; with `exact`, integers are converted from any storage class."""
    source = chunk.source
    table = source.table
    expressions = []
    for ours, kind in column_types(source).items():
        theirs = source.columns[ours]
        column = theirs if theirs == ROW_ID else quote_name(theirs)
        if kind == pl.String:
            expressions.append(f"{_as_bytes(ours, column)} AS {quote_name(ours)}")
        elif kind.is_float():
            expressions.append(
                f"CAST(coalesce({column}, 0) AS REAL) AS {quote_name(ours)}, {column} IS NULL AS {ours}_null"
            )
        elif exact and theirs != ROW_ID:
            value = _as_integer(column)
            refused = f"coalesce(trim({column}), '') <> '' AND {value} IS NULL"
            expressions.append(f"{value} AS {quote_name(ours)}, {refused} AS {ours}_refused")
        else:
            expressions.append(f"{column} AS {quote_name(ours)}")
    conditions = []
    if chunk.first_row is not None:
        conditions.append(f"{ROW_ID} >= {chunk.first_row}")
    if chunk.last_row is not None:
        conditions.append(f"{ROW_ID} <= {chunk.last_row}")
    if table.any_of:
        present = [quote_name(source.columns[ours]) for ours in table.any_of if ours in source.columns]
        conditions.append(f"coalesce({', '.join(present)}, NULL) IS NOT NULL" if present else "0")
    if names := rows_to_read(table):
        conditions.append(f"{quote_name(source.columns['name'])} IN ({', '.join(map(_literal, names))})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(expressions)} FROM {_rows(chunk)}{where}"


def _rows(chunk: Chunk) -> str:
    table = quote_name(chunk.source.name)
    if chunk.has_row_id:
        return table
    # not all columns: computed ones would be computed
    columns = ", ".join(
        quote_name(name) for name in dict.fromkeys(chunk.source.columns.values()) if name != ROW_ID
    )
    return f"(SELECT {columns or 'NULL'}, row_number() OVER () AS {ROW_ID} FROM {table})"


def _as_bytes(ours: str, column: str) -> str:
    if ours == "binary":  # written as bytes by some exporters, as hexadecimal text by others
        return f"CAST(CASE typeof({column}) WHEN 'blob' THEN lower(hex({column})) ELSE coalesce({column}, '') END AS BLOB)"
    return f"CAST(coalesce({column}, '') AS BLOB)"


def _as_integer(column: str) -> str:
    """Convert exact integers of any storage class; NULL for other values."""
    whole = f"CAST({column} AS INTEGER)"
    return (
        f"CASE typeof({column}) WHEN 'integer' THEN {column}"
        f" WHEN 'real' THEN CASE WHEN {whole} = {column} THEN {whole} END"
        f" WHEN 'text' THEN CASE WHEN CAST({whole} AS TEXT) = trim({column}) THEN {whole} END END"
    )


def quote_name(name: str) -> str:
    """Quote a name."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _literal(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
