"""Schemas of SQLite exports: tables with their columns, and how each is stored.

Reports of one version of nsys have equal schemas, and each is described once: the definitions of the tables of a file, as
SQLite stores them, contain everything else.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.raw import Group
from nsys_pp.read.plan import name_recorded, plan_sources
from nsys_pp.read.sqlite_plain import Layout, describe_table
from nsys_pp.read.table import Source

Query = Callable[[str], pl.DataFrame]
_Definitions = tuple[tuple[bytes, bytes], ...]  # name and SQL of each table, by name
_MOST_SCHEMAS = 64  # that are kept

# programs in a file are not run: views, and virtual tables, which have no page of their own
_TABLES = "FROM sqlite_master AS t{} WHERE t.type = 'table' AND t.rootpage > 0 ORDER BY t.name"


class Stored(Struct, frozen=True):
    """Definition of a table, as SQLite parses it."""

    raw_name: bytes
    columns: list[tuple[str, str, int, int]]  # as for `describe_table`
    required: list[bool]  # of each: declared NOT NULL
    has_desc: bool


class Schema(Struct, frozen=True):
    """The tables of an export; shared by reports, and never changed."""

    catalog: dict[str, list[str]]
    recorded: dict[str, str]  # exported names of tables by raw frame
    stored: dict[str, Stored]
    plans: dict[frozenset[Group], list[Source]] = field(default_factory=dict)

    def plan(self, need: frozenset[Group]) -> list[Source]:
        """List the tables that fill raw frames, with their columns (`plan_sources`)."""
        if need not in self.plans:
            self.plans[need] = plan_sources(self.catalog, need, has_row_id=True)
        return self.plans[need]


_schemas: dict[_Definitions, Schema] = {}


def read_schema(query: Query) -> tuple[Schema, dict[str, Layout]]:
    """Read the columns of each table, and how it is stored.

    Args:
        query: Runs a query.
    """
    rows = query(
        "SELECT CAST(t.name AS BLOB) AS name, CAST(coalesce(t.sql, '') AS BLOB) AS sql, t.rootpage AS root "
        + _TABLES.format("")
    ).rows()
    definitions = tuple((name, sql) for name, sql, _ in rows)
    schema = _schemas.get(definitions)
    if schema is None:
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.clear()
        schema = _schemas[definitions] = _describe(query)
    roots = {name: root for name, _, root in rows}
    layouts = {
        name: describe_table(roots[stored.raw_name], stored.columns, mentions_desc=stored.has_desc)
        for name, stored in schema.stored.items()
    }
    return schema, layouts


def _describe(query: Query) -> Schema:
    rows = query(
        "SELECT CAST(t.name AS BLOB) AS name, CAST(c.name AS BLOB) AS column,"
        " CAST(coalesce(c.type, '') AS BLOB) AS declared, c.\"notnull\" AS required, c.pk AS key, c.hidden AS kind,"
        " coalesce(t.sql LIKE '%desc%', 0) AS has_desc "
        + _TABLES.format(", pragma_table_xinfo(t.name) AS c")
        + ", c.cid"
    )
    catalog: dict[str, list[str]] = {}
    columns: dict[str, list[tuple[str, str, int, int]]] = {}
    required: dict[str, list[bool]] = {}
    last: dict[str, tuple[bytes, bool]] = {}
    for raw_name, *texts, is_required, key, kind, has_desc in rows.rows():
        # in a damaged file names need not be UTF-8
        name, column, declared = (text.decode("utf-8", "replace") for text in (raw_name, *texts))
        columns.setdefault(name, []).append((column, declared, key, kind))
        required.setdefault(name, []).append(bool(is_required))
        last[name] = raw_name, bool(has_desc)
        if kind == 0:  # others are generated, or hidden in a virtual table
            catalog.setdefault(name, []).append(column)
    return Schema(
        catalog=catalog,
        recorded=name_recorded(catalog),
        stored={
            name: Stored(raw_name, columns[name], required[name], has_desc)
            for name, (raw_name, has_desc) in last.items()
        },
    )
