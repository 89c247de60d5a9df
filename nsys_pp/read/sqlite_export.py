"""Reader of SQLite exports: the needed columns of the needed tables become raw frames.

SQLite judges what is damaged: it refuses to read, or `quick_check` complains of a small file, or of a table
whose rows are fewer than their numbers, or in another order.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.arrays.threads import count_processors
from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import SCHEMAS, SHOW_GROUPS, ExportedTable, Group, RawReport, RowTally
from nsys_pp.progress import report_stage
from nsys_pp.read.names import ROW_ID, STRINGS_TABLE, Source
from nsys_pp.read.plan import (
    assemble,
    check_row_counts,
    list_tables,
    name_recorded,
    plan_sources,
    shape_rows,
    tally_rows,
)
from nsys_pp.read.sqlite import Connection, Database, open_database
from nsys_pp.read.sqlite_file import IMMUTABLE, busy_error, check_database, damaged_error, find_state

_MAX_THREADS = 4
_SMALL_FILE_BYTES = 4_000_000  # read by one thread, and checked as a whole: SQLite takes 9 ms for each MB
_LEAST_ROW_BYTES = 5  # pointer, length, row id, length of the header, one value
_NO_LOCKS = (
    "disk i/o error",
    "locking protocol",
)  # SQLite's words on file systems without locks, which clusters have
_DAMAGED = ("malformed", "corrupt", "disk i/o error", "short read")
_ORDER = "__row"  # column of a query: the number of the row


class _Export(Struct, frozen=True):
    catalog: dict[str, list[str]]  # columns of each table
    own_ids: frozenset[str]  # tables whose row ids the exporter chooses: they need not begin at 1
    is_computed: bool  # a column is a program
    recorded: dict[str, str]  # exported names of tables by raw frame
    sources: list[Source]  # to read
    last_rows: dict[str, int]  # last row id of tables with row ids; exporters number rows from 1


def read_sqlite(path: Path, *, need: frozenset[Group], threads: int | None = None) -> RawReport:
    """Read a report that nsys exported as SQLite; it is never written to.

    Args:
        path: The export.
        need: Groups of tables and columns to read in addition to the session.
        threads: Number of threads; the number of cores, at most 4, if None.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    uri = check_database(path)
    state = find_state(path)
    with _open_export(path, uri, need, threads) as (database, export):
        sources = export.sources
        sizes = [export.last_rows.get(source.name, 0) * len(source.columns) for source in sources]
        order = sorted(range(len(sources)), key=sizes.__getitem__, reverse=True)  # threads finish together
        total = max(sum(sizes), 1)

        def follow(finished: int) -> None:
            share = sum(sizes[at] for at in order[:finished]) / total
            report_stage(f"read {share:.0%} of the tables", share)

        read = database.map(partial(_read_source, path, export), [sources[at] for at in order], follow=follow)
        rows = [rows for _, rows in sorted(zip(order, read, strict=True), key=lambda one: one[0])]
        frames = assemble((source.table.frame, one.frame) for source, one in zip(sources, rows, strict=True))
        tally = tally_rows(sources, frames)
        suspects = _count_missing(path, tally, export)
        suspects |= {source.name for source, one in zip(sources, rows, strict=True) if not one.is_in_order}
        if need and (damage := database.call(partial(_find_damage, path, export, sorted(suspects)))):
            warnings.warn(
                f"`{path}` is damaged, so rows may be missing or wrong (SQLite: {damage});"
                " `nsys-pp check` shows where",
                stacklevel=4,
            )
        tables: tuple[ExportedTable, ...] = ()
        if "tables" in need:
            tables = list_tables(export.catalog, database.call(partial(_count_all, export)))
    if find_state(path) != state:  # tables are read at different times
        raise busy_error(path)
    counts = {frame: export.last_rows.get(name, 0) for frame, name in export.recorded.items()}
    return RawReport(path=path, groups=need, frames=frames, recorded=counts, tally=tally, tables=tables)


def check_sqlite(path: Path) -> None:
    """Read as little as it takes to refuse a file that is not an export of nsys: the names of its tables.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    with _open_export(path, check_database(path), frozenset(), 1):
        pass


@contextmanager
def _open_export(
    path: Path, uri: str, need: frozenset[Group], threads: int | None
) -> Iterator[tuple[Database, _Export]]:
    """Open a file and describe its tables; errors of SQLite become those of `read_sqlite`."""
    size, _ = find_state(path)
    if threads is None:
        threads = 1 if size <= _SMALL_FILE_BYTES else min(_MAX_THREADS, count_processors())
    try:
        with ExitStack() as stack:
            database = stack.enter_context(open_database(uri, size, threads=threads))
            try:
                export = database.call(partial(_describe, need=need))
            except sqlite3.Error as error:
                if IMMUTABLE in uri or not any(sign in str(error).lower() for sign in _NO_LOCKS):
                    raise
                database = stack.enter_context(open_database(uri + IMMUTABLE, size, threads=threads))
                export = database.call(partial(_describe, need=need))
            if not export.recorded:
                raise ReportError(
                    f"`{path}` has no table that Nsight Systems exports",
                    "record a report with `nsys profile` and export it with `nsys export --type sqlite`",
                )
            check_row_counts(path, export.sources, export.last_rows)
            yield database, export
    except sqlite3.Error as error:
        text = str(error).lower()
        if "locked" in text or "busy" in text:
            raise busy_error(path) from None
        if any(sign in text for sign in _DAMAGED):
            raise damaged_error(path) from None
        raise ReportError(f"`{path}` cannot be read: {str(error).splitlines()[0].rstrip('. ')}") from error


def _describe(connection: Connection, *, need: frozenset[Group]) -> _Export:
    """Describe the tables. Views and virtual tables are programs, and have no page of their own."""
    *texts, key, kind = connection.fetch(
        "SELECT CAST(t.name AS TEXT), CAST(c.name AS TEXT), CAST(c.type AS TEXT), c.pk, c.hidden"
        " FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c"
        " WHERE t.type = 'table' AND t.rootpage > 0 ORDER BY t.name, c.cid",
        "tttii",
    ).columns
    catalog: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    rows = zip(*(text.fill_null("").to_list() for text in texts), key.to_list(), kind.to_list(), strict=True)
    for name, column, declared, at, of in rows:
        if of == 0:  # others are generated, or hidden
            catalog.setdefault(name, []).append(column)
        if at:
            keys.setdefault(name, []).append(declared.upper())
    recorded = name_recorded(catalog)
    sources = plan_sources(catalog, need, has_row_id=True)
    names = {*recorded.values(), STRINGS_TABLE, *(source.name for source in sources)}
    return _Export(
        catalog=catalog,
        own_ids=frozenset(name for name, declared in keys.items() if declared == ["INTEGER"]),
        is_computed=bool((kind != 0).any()),
        recorded=recorded,
        sources=sources,
        last_rows=_find_last_rows(
            connection, sorted(catalog if "tables" in need else names & catalog.keys())
        ),
    )


def _find_last_rows(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Find the last row id of each table that has row ids."""
    if not names:
        return {}
    columns = (f"(SELECT coalesce(max({ROW_ID}), 0) FROM {_quote(name)})" for name in names)
    try:
        rows = connection.fetch(f"SELECT {', '.join(columns)}", "i" * len(names))
    except sqlite3.Error as error:  # a table made WITHOUT ROWID has no such column
        if len(names) == 1:
            if "no such column" not in str(error):
                raise
            return {}
        return {name: row for table in names for name, row in _find_last_rows(connection, [table]).items()}
    return {name: int(column[0] or 0) for name, column in zip(names, rows.columns, strict=True)}


class _SourceRows(Struct, frozen=True):
    frame: pl.DataFrame  # from `shape_rows`
    is_in_order: bool  # of the row ids


def _read_source(path: Path, export: _Export, connection: Connection, source: Source) -> _SourceRows:
    has_row_id, most_rows = source.name in export.last_rows, export.last_rows.get(source.name, 0)
    for is_exact in (False, True):
        columns = _list_expressions(source, has_row_id=has_row_id, is_exact=is_exact)
        fetched = connection.fetch(
            f"SELECT {', '.join(expression for _, expression in columns.values())}"
            f" FROM {_name_rows(source, has_row_id)}{_write_condition(source)}",
            "".join(kind for kind, _ in columns.values()),
            most_rows=most_rows,
        )
        if not fetched.is_odd:
            break
    frame = pl.DataFrame(dict(zip(columns, fetched.columns, strict=True)))
    if is_exact:
        _refuse_text(path, source, frame)
    ids = next((ours for ours, theirs in source.columns.items() if theirs == ROW_ID), _ORDER)
    is_in_order = ids not in frame.columns or frame[ids].is_sorted()
    return _SourceRows(shape_rows(source, frame), is_in_order)


def _list_expressions(source: Source, *, has_row_id: bool, is_exact: bool) -> dict[str, tuple[str, str]]:
    """List the kind and the expression of each column.

    If `is_exact`, integers are converted from any storage class.
    """
    table, schema = source.table, SCHEMAS[source.table.frame]
    found = {_ORDER: ("i", ROW_ID)} if has_row_id and ROW_ID not in source.columns.values() else {}
    for ours, theirs in source.columns.items():
        column = theirs if theirs == ROW_ID else _quote(theirs)
        dtype = schema[ours]
        if table.columns[ours].words is not None or dtype.is_integer():
            if is_exact and theirs != ROW_ID:
                whole = f"CAST({column} AS INTEGER)"
                value = (
                    f"CASE typeof({column}) WHEN 'integer' THEN {column}"
                    f" WHEN 'real' THEN CASE WHEN {whole} = {column} THEN {whole} END"
                    f" WHEN 'text' THEN CASE WHEN CAST({whole} AS TEXT) = trim({column}) THEN {whole} END END"
                )
                found[f"{ours}_refused"] = ("i", f"coalesce(trim({column}), '') <> '' AND {value} IS NULL")
                column = value
            found[ours] = ("i", column)
        elif dtype.is_float():
            found[ours] = ("r", f"CAST({column} AS REAL)")
        elif ours == "binary":  # written as bytes by some exporters, as hexadecimal text by others
            hexadecimal = f"CASE typeof({column}) WHEN 'blob' THEN lower(hex({column})) ELSE {column} END"
            found[ours] = ("t", f"CAST({hexadecimal} AS TEXT)")
        else:
            found[ours] = ("t", f"CAST({column} AS TEXT)")
    return found


def _name_rows(source: Source, has_row_id: bool) -> str:
    if has_row_id:
        return f"{_quote(source.name)} NOT INDEXED"  # in order of the row ids
    # not all columns: computed ones would be computed
    columns = ", ".join(_quote(name) for name in dict.fromkeys(source.columns.values()) if name != ROW_ID)
    return f"(SELECT {columns or 'NULL'}, row_number() OVER () AS {ROW_ID} FROM {_quote(source.name)})"


def _write_condition(source: Source) -> str:
    table, conditions = source.table, []
    if table.any_of:
        present = [_quote(source.columns[ours]) for ours in table.any_of if ours in source.columns]
        conditions.append(f"coalesce({', '.join(present)}, NULL) IS NOT NULL" if present else "0")
    if table.rows_named:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in table.rows_named)
        conditions.append(f"{_quote(source.columns['name'])} IN ({names})")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _refuse_text(path: Path, source: Source, frame: pl.DataFrame) -> None:
    """Raise if a number that matters is text; columns for drawing alone become null."""
    for ours, column in source.table.columns.items():
        flag = f"{ours}_refused"
        for_drawing = {"details", "cpu"} & {*column.groups} or SHOW_GROUPS & {*source.table.groups}
        if flag in frame.columns and not for_drawing and frame[flag].sum():
            raise ReportError(
                f"`{path}`: column `{source.columns[ours]}` of table `{source.name}` has text where a"
                " number belongs",
                "export it again with `nsys export --type sqlite`",
            )


def _count_missing(path: Path, tally: RowTally, export: _Export) -> set[str]:
    """Count the missing rows of each table of events.

    SQLite numbers rows from 1, and the numbers have no gaps.

    Numbers of more rows than the file has room for are damaged themselves, and no count. Returns the tables
    that lack rows.
    """
    most, lacking = path.stat().st_size // _LEAST_ROW_BYTES, set()
    for source in export.sources:
        frame, last = source.table.frame, export.last_rows.get(source.name, 0)
        if frame not in tally.read or not source.table.groups or source.name in export.own_ids:
            continue
        count = last - tally.read[frame]
        if count > 0:
            lacking.add(source.name)
            if last <= most:
                tally.missing[frame] = count
    return lacking


def _find_damage(path: Path, export: _Export, suspects: Sequence[str], connection: Connection) -> str | None:
    """Return SQLite's first complaint about a small file, or about suspect tables of a large one."""
    if export.is_computed:  # the check would run the programs of the file
        return None
    small = path.stat().st_size <= _SMALL_FILE_BYTES
    for argument in ["1"] if small else map(_quote, suspects):
        try:
            lines = connection.fetch(f"PRAGMA quick_check({argument})", "t").columns[0]
        except sqlite3.Error as error:
            return str(error)
        complaints = [line for text in lines.drop_nulls() for line in text.splitlines() if line[:3] != "***"]
        if complaints != ["ok"]:
            return next(iter(complaints), "malformed")
    return None


def _count_all(export: _Export, connection: Connection) -> dict[str, int]:
    """Count the rows of all tables: by their last row id, where the exporter does not choose it."""
    counts = dict(export.last_rows)
    for name in export.catalog:
        if name not in counts or name in export.own_ids:
            # row by row: the count of a tree that has a page many times would not end
            rows = connection.fetch(f"SELECT count(*) FROM (SELECT 1 FROM {_quote(name)} LIMIT -1)", "i")
            counts[name] = int(rows.columns[0][0])
    return counts
