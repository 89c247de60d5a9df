"""Reader of SQLite exports: the needed columns become frames, on all cores.

Large tables of the usual form are decoded from their pages by numpy (`sqlite_plain.py`). SQLite itself reads the
catalog, small tables, and those that are damaged or of another form; the frames are the same.

ADBC's SQLite driver steps through a table in C and hands the rows over as Arrow batches. The
low-level classes are used because the DB-API ones import pyarrow wherever it is installed.
A table is read in ranges of row ids by several threads, each with a connection of its own; the main thread waits, and so
hears Ctrl-C.

The driver takes a column's type from the first batch: one that begins with NULLs only is taken
for integers, and the first text after that is an error. So no column is left to its guess: text
is read as bytes that are never NULL (which also admits bytes that are not UTF-8, to be repaired here), a
real is never NULL, and columns of integers that have other values are read again.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import adbc_driver_manager as adbc
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.text_slices import decode_text
from nsys_pp.arrays.threads import count_processors
from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import ON_REQUEST, SHOW_GROUPS, Group, RawReport
from nsys_pp.read.interruptible import map_interruptibly
from nsys_pp.read.last_file import Stamp
from nsys_pp.read.plan import assemble, list_tables, shape_rows, tally_rows
from nsys_pp.read.row_limits import check_row_counts
from nsys_pp.read.sqlite_connection import Call, Connection, connect
from nsys_pp.read.sqlite_damage import count_missing, find_damage
from nsys_pp.read.sqlite_file import busy_error, check_database, damaged_error, read_stamp
from nsys_pp.read.sqlite_plain import Layout, read_plain
from nsys_pp.read.sqlite_query import Chunk, column_types, quote_name, write_query
from nsys_pp.read.sqlite_schema import Schema, read_schema
from nsys_pp.read.sqlite_small import (
    SmallFile,
    SoundFile,
    check_small,
    find_last_rows,
    find_schema,
    keep_schema,
    open_small,
)
from nsys_pp.read.sqlite_trees import has_endless_tree
from nsys_pp.read.table import Source
from nsys_pp.read.tables import ROW_ID, STRINGS_TABLE
from nsys_pp.read.unreadable import unreadable_error

_LARGE_TABLE_ROWS = 2_000  # below, a query takes no longer
_BATCH_ROWS = 65_536
_CHUNK_ROWS = 262_144
_MOST_ROWS = 1 << 33
_MAX_THREADS = 4
_FEW_CELLS = 1_000_000  # of all queries; below, starting threads and connections takes more than it saves
_OF_SCRATCH = (errno.ENOSPC, errno.EDQUOT)  # columns may be in a temporary file


def read_sqlite(path: Path, *, need: frozenset[Group], threads: int | None = None) -> RawReport:
    """Read a report that nsys exported as SQLite; it is never written to.

    Args:
        path: The export.
        need: Groups of tables and columns to read in addition to the session.
        threads: Number of threads; the number of cores, at most 4, if None.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    uri, stamp = check_database(path), read_stamp(path)
    with _translated_errors(path):
        small = open_small(path, stamp)
    with _open(path, uri, stamp, need, small) as (export, connection):
        sources = export.sources
        count = threads or min(_MAX_THREADS, count_processors())
        with _translated_errors(path):
            decoded = (
                _decode_all(export.sound, need)
                if export.sound is not None
                else _read_large(path, sources, export, count)
            )
            queried = [source.name for at, source in enumerate(sources) if at not in decoded]
            if export.sound is None and has_endless_tree(
                path, [export.layouts[name].root for name in queried]
            ):
                raise damaged_error(path)
            chunks = [
                (at, chunk)
                for at, source in enumerate(sources)
                if at not in decoded
                for chunk in _split(source, export)
            ]
            read = _read_chunks(path, connection, [chunk for _, chunk in chunks], count)
            for (at, _), rows in zip(chunks, read, strict=True):
                decoded.setdefault(at, []).append(rows)
        if need and export.sound is None:  # else it is read again, or was checked
            _warn_of_damage(path, connection.call, export, queried)
        if read_stamp(path) != export.stamp:  # ranges of rows are read at different times
            raise busy_error(path)
        row_counts = _count_all(path, connection.call, export) if "tables" in need else {}
    frames = assemble(
        (source.table.frame, rows) for at, source in enumerate(sources) for rows in decoded.pop(at)
    )
    counts = {frame: export.last_rows.get(name, 0) for frame, name in export.recorded.items()}
    tally = tally_rows(sources, frames)
    count_missing(path, tally, sources, export.layouts, export.last_rows)
    tables = list_tables(export.catalog, row_counts) if "tables" in need else ()
    return RawReport(path=path, groups=need, frames=frames, recorded=counts, tally=tally, tables=tables)


def check_sqlite(path: Path) -> None:
    """Read as little as it takes to refuse a file that is not an export of nsys: the names of its tables.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    uri, stamp, need = check_database(path), read_stamp(path), frozenset[Group]()
    with _translated_errors(path):
        small = open_small(path, stamp)
        schema = None if small is None else find_schema(small)
        if small is not None and schema is not None and schema.recorded:
            sources = schema.plan(need)
            last_rows = find_last_rows(small, _list_numbered(schema, sources, need))
            if last_rows is not None:
                check_row_counts(path, sources, last_rows)
                return
    with _open(path, uri, stamp, need, small):
        pass


class _Export(Struct, frozen=True):
    stamp: Stamp
    catalog: dict[str, list[str]]
    layouts: dict[str, Layout]
    recorded: dict[str, str]  # exported names of tables by raw frame
    sources: list[Source]  # to read
    last_rows: dict[str, int]  # table -> last row id, of tables with row ids; exporters number rows from 1
    sound: SoundFile | None = None  # checked, and in memory


@contextmanager
def _open(
    path: Path, uri: str, stamp: Stamp, need: frozenset[Group], small: SmallFile | None
) -> Iterator[tuple[_Export, Connection]]:
    """Describe the tables, and refuse a file that is no export; yields also a connection."""
    with ExitStack() as stack:
        connection = Connection(stack, uri)
        with _translated_errors(path):
            export = None if small is None else _describe_small(small, stamp, need)
            if export is None:
                if has_endless_tree(path, [1]):
                    raise damaged_error(path)
                export = connection.call(partial(_read_export, stamp=stamp, need=need, small=small))
            if not export.recorded:
                raise ReportError(
                    f"`{path}` has no table that Nsight Systems exports",
                    "record a report with `nsys profile` and export it with `nsys export --type sqlite`",
                )
            check_row_counts(path, export.sources, export.last_rows)
        yield export, connection


def _describe_small(small: SmallFile, stamp: Stamp, need: frozenset[Group]) -> _Export | None:
    """Describe a small file without SQLite; None if that must read it."""
    sound = check_small(small)
    if sound is None:
        return None
    schema, rows = sound.parsed.schema, sound.find_last_rows()
    sources = schema.plan(need)
    last_rows = {name: rows[name] for name in _list_numbered(schema, sources, need)}
    return _Export(
        stamp, schema.catalog, dict(sound.parsed.layouts), schema.recorded, sources, last_rows, sound
    )


def _read_export(
    connection: adbc.AdbcConnection,
    *,
    stamp: Stamp,
    need: frozenset[Group],
    small: SmallFile | None,
) -> _Export:
    schema, layouts = read_schema(partial(_query, connection))
    if small is not None:
        keep_schema(small, schema, layouts)
    sources = schema.plan(need)
    last_rows = _find_last_rows(connection, _list_numbered(schema, sources, need))
    return _Export(stamp, schema.catalog, layouts, schema.recorded, sources, last_rows)


def _list_numbered(schema: Schema, sources: Sequence[Source], need: frozenset[Group]) -> list[str]:
    """List the tables whose last row ids are needed."""
    names = {*schema.recorded.values(), STRINGS_TABLE}
    if need & ON_REQUEST:  # their tables are not in `recorded`
        names |= {source.name for source in sources}
    return sorted({*schema.catalog} if "tables" in need else names & schema.catalog.keys())


def _count_all(path: Path, call: Call, export: _Export) -> dict[str, int]:
    """Count the rows of all tables: by their last row id, where the exporter does not choose it."""
    if export.sound is not None:
        counted = export.sound.count_rows()
        return {
            name: counted[name] if export.layouts[name].row_id is not None else last
            for name, last in export.last_rows.items()
        }
    chosen = [
        name
        for name in export.catalog
        if name not in export.last_rows or export.layouts[name].row_id is not None
    ]
    if has_endless_tree(path, [export.layouts[name].root for name in chosen]):
        raise damaged_error(path)
    counts = dict(export.last_rows)
    with _translated_errors(path):
        for name in chosen:
            sql = f"SELECT count(*) FROM {quote_name(name)}"
            counts[name] = int(call(partial(_query, sql=sql)).item())
    return counts


def _read_large(
    path: Path, sources: Sequence[Source], export: _Export, threads: int
) -> dict[int, list[pl.DataFrame]]:
    """Decode large tables from their pages: rows by the position of the table in `sources`."""
    large = [
        at for at, source in enumerate(sources) if export.last_rows.get(source.name, 0) >= _LARGE_TABLE_ROWS
    ]
    found = read_plain(
        path, [sources[at] for at in large], export.layouts, last_rows=export.last_rows, threads=threads
    )
    return {large[at]: [rows] for at, rows in found.items()}


def _decode_all(sound: SoundFile, need: frozenset[Group]) -> dict[int, list[pl.DataFrame]]:
    """Decode the tables of a sound file, except those whose values SQLite must convert."""
    found = {}
    for at, (source, wanted) in enumerate(sound.parsed.plan(need)):
        rows = None if wanted is None else sound.decode(source, wanted)
        if rows is not None:
            found[at] = [rows] if rows.width else []
    return found


def _warn_of_damage(path: Path, call: Call, export: _Export, queried: Sequence[str]) -> None:
    """Warn of damage that did not stop the reading."""
    try:
        damage = call(
            lambda connection: find_damage(path, partial(_query, connection), export.layouts, queried)
        )
    except (adbc.Error, pl.exceptions.PolarsError) as error:
        damage = next(iter(str(error).splitlines()), "malformed")
    if damage is not None:
        warnings.warn(
            f"`{path}` is damaged, so rows may be missing or wrong (SQLite: {damage}); `nsys-pp check` shows where",
            stacklevel=4,
        )


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Translate the errors of SQLite, and of a file that vanishes while it is read."""
    try:
        yield
    except OSError as error:
        if error.errno in _OF_SCRATCH or error.filename not in (None, str(path)):
            raise
        raise unreadable_error(path, error) from None
    except (adbc.Error, pl.exceptions.PolarsError) as error:
        text = str(error).lower()
        if "locked" in text or "busy" in text:
            raise busy_error(path) from None
        if any(sign in text for sign in ("malformed", "corrupt", "disk i/o error", "short read")):
            raise damaged_error(path) from None
        raise ReportError(f"`{path}` cannot be read: {str(error).splitlines()[0].rstrip('. ')}") from error


def _query(connection: adbc.AdbcConnection, sql: str) -> pl.DataFrame:
    with adbc.AdbcStatement(connection) as statement:
        statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        return pl.DataFrame(stream)


def _find_last_rows(connection: adbc.AdbcConnection, names: Sequence[str]) -> dict[str, int]:
    """Find the last row id of each table that has row ids."""
    if not names:
        return {}
    columns = (
        f"(SELECT coalesce(max({ROW_ID}), 0) FROM {quote_name(name)}) AS {quote_name(name)}" for name in names
    )
    try:
        return _query(connection, f"SELECT {', '.join(columns)}").row(0, named=True)
    except adbc.ProgrammingError:  # a table made WITHOUT ROWID has no such column
        if len(names) == 1:
            return {}
        return {name: row for table in names for name, row in _find_last_rows(connection, [table]).items()}


def _split(source: Source, export: _Export) -> list[Chunk]:
    """Split a table into ranges of row ids; the first and the last range are open-ended."""
    has_row_id = source.name in export.last_rows or source.name not in export.recorded.values()
    last_row = export.last_rows.get(source.name, 0)
    if last_row > _MOST_ROWS:  # not the numbering of an exporter: read as one range
        last_row = 0
    bounds = list(range(_CHUNK_ROWS, last_row - _CHUNK_ROWS // 2, _CHUNK_ROWS))
    cells = last_row * len(source.columns) // (len(bounds) + 1)
    return [
        Chunk(source, has_row_id, None if first is None else first + 1, last, cells)
        for first, last in zip([None, *bounds], [*bounds, None], strict=True)
    ]


def _read_chunks(
    path: Path, connection: Connection, chunks: Sequence[Chunk], threads: int
) -> list[pl.DataFrame]:
    if not chunks:
        return []
    if sum(chunk.cells for chunk in chunks) < _FEW_CELLS:
        read: list[pl.DataFrame] = connection.call(
            lambda opened: [_read_chunk(path, opened, chunk) for chunk in chunks]
        )
        return read
    # the largest first, so that all threads finish at about the same time
    order = sorted(range(len(chunks)), key=lambda at: chunks[at].cells, reverse=True)
    parts = map_interruptibly(
        partial(_read_chunk, path),
        [chunks[at] for at in order],
        open_state=partial(connect, connection.uri),
        threads=min(threads, len(chunks)),
    )
    by_position = dict(zip(order, parts, strict=True))
    return [by_position[at] for at in range(len(chunks))]


def _read_chunk(path: Path, connection: adbc.AdbcConnection, chunk: Chunk) -> pl.DataFrame:
    kinds = column_types(chunk.source)
    try:
        frame = _query(connection, write_query(chunk, exact=False))
        is_as_asked = all(frame[name].dtype == pl.Int64 for name, kind in kinds.items() if kind.is_integer())
    except pl.exceptions.ComputeError as error:
        if "type mismatch" not in str(error).lower():
            raise
        is_as_asked = False
    if not is_as_asked:
        frame = _query(connection, write_query(chunk, exact=True))
        _refuse_text(path, chunk.source, frame)
    frame = pl.DataFrame([_repair(frame, name, kind) for name, kind in kinds.items()])
    return shape_rows(chunk.source, frame)


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


def _repair(frame: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Series:
    values = frame[name]
    if kind == pl.String:
        return decode_text(values)
    if kind.is_float():
        return values.cast(kind).set(frame[f"{name}_null"] != 0, None)
    return values
