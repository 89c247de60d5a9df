"""Reader of SQLite exports: the needed columns of the needed tables become raw frames.

`sqlite.c` steps a statement and fills arrays, with the SQLite that Python itself has loaded: its functions
are found through the module `_sqlite3`. Where they cannot be found, as in an interpreter that hides them,
Python's own module gives the rows, in some three times the time. The columns are the same, and so are
SQLite's words for what is wrong with a file.

A query ends after so many steps as no file of its size can need: a tree that has a page many times would keep
SQLite busy for ever. SQLite judges what is damaged: it refuses to read, or `quick_check` complains of a small
file, or of a table whose rows are fewer than their numbers, or in another order.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import secrets
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.compiled import load_library
from nsys_pp.errors import ReportError, result_code
from nsys_pp.frames.raw import SCHEMAS, Group, RawReport, RowTally
from nsys_pp.progress import report_stage
from nsys_pp.read.files import (
    FIND_PROGRAMS,
    HIDING,
    IMMUTABLE,
    LOCKED,
    NO_LOCKS,
    PROGRAMS,
    SETTINGS,
    STEPS,
    STORED,
    UNSTORED,
    busy_error,
    check_database,
    count_calls,
    explain_sqlite,
    find_state,
    hiding_error,
    hold_file,
    most_value_bytes,
    quote_name,
)
from nsys_pp.read.names import KNOWN, ROW_ID, Source, spell
from nsys_pp.read.plan import (
    LEAST_ROW_BYTES,
    Refused,
    assemble,
    check_row_counts,
    drop_refused,
    leave_out,
    list_lost,
    list_tables,
    name_recorded,
    plan_sources,
    shape_rows,
    tally_rows,
)

T = TypeVar("T")
R = TypeVar("R")
_OPEN = 0x1 | 0x40 | 0x8000  # SQLITE_OPEN_READONLY, _URI, _NOMUTEX: one thread at a time uses a connection
_ROW, _DONE = 100, 101  # of sqlite3.h
_BLOCK_ROWS = 65_536

_DTYPES = {"i": np.int64, "r": np.float64, "t": np.uint32}
_TYPES = {"i": pl.Int64, "r": pl.Float64, "t": pl.String}


class Rows(Struct, frozen=True):
    """Result of a query."""

    columns: list[pl.Series]  # Int64, Float64, or String without empty texts
    is_odd: bool  # integers are stored as something else, and are wrong here


class _Column(ctypes.Structure):
    # `Column` of `sqlite.c`
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("is_null", ctypes.c_void_p),
        ("nulls", ctypes.c_int64),
        ("odd", ctypes.c_int64),
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("bytes_room", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("ends_room", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("slot_count", ctypes.c_int64),
    )


class _Library(Struct, frozen=True):
    sqlite: ctypes.CDLL
    own: ctypes.CDLL
    functions: ctypes.Array[ctypes.c_void_p]  # `Sqlite` of `sqlite.c`
    spend: ctypes.c_void_p


@cache
def find_library() -> _Library | None:
    """Find the SQLite that Python has loaded; None where its functions are hidden."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    arguments = {
        "sqlite3_open_v2": (ctypes.c_char_p, pointer, number, ctypes.c_char_p),
        "sqlite3_close_v2": (pointer,),
        "sqlite3_prepare_v2": (pointer, ctypes.c_char_p, number, pointer, pointer),
        "sqlite3_finalize": (pointer,),
        "sqlite3_errmsg": (pointer,),
        "sqlite3_extended_errcode": (pointer,),
        "sqlite3_interrupt": (pointer,),
        "sqlite3_progress_handler": (pointer, number, pointer, pointer),
        "sqlite3_limit": (pointer, number, number),
    }
    used = (
        "step",
        "column_value",
        *(f"value_{name}" for name in ("type", "int64", "double", "text", "bytes")),
    )
    try:
        sqlite = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        for name, types in arguments.items():
            sqlite[name].argtypes = types
        sqlite.sqlite3_errmsg.restype = ctypes.c_char_p
        sqlite.sqlite3_interrupt.restype = sqlite.sqlite3_progress_handler.restype = None
        addresses = [ctypes.cast(sqlite[f"sqlite3_{name}"], pointer) for name in used]
    except (OSError, AttributeError):
        return None
    own = load_library(Path(__file__).with_name("sqlite.c"), {"column_size": ctypes.sizeof(_Column)})
    own.read_rows.argtypes = (pointer, pointer, ctypes.c_int64, pointer, pointer, ctypes.c_int64)
    own.read_rows.restype = ctypes.c_int64
    own.free_texts.argtypes, own.free_texts.restype = (pointer,), None
    secret = (ctypes.c_uint64 * 2).in_dll(own, "secret")
    secret[0], secret[1] = secrets.randbits(64), secrets.randbits(64) | 1
    return _Library(sqlite, own, (pointer * len(used))(*addresses), ctypes.cast(own.spend, pointer))


class CompiledConnection:
    """A connection to a SQLite file by `sqlite.c`.

    Args:
        uri: Of the file.
        size: Of the file in bytes.
        library: From `find_library`.

    Raises:
        sqlite3.Error: SQLite cannot open it.
    """

    def __init__(self, uri: str, size: int, library: _Library) -> None:
        self._library, self._sqlite, self._size = library, library.sqlite, size
        self._budget, self._database = ctypes.c_int64(0), ctypes.c_void_p()
        if self._sqlite.sqlite3_open_v2(uri.encode(), ctypes.byref(self._database), _OPEN, None):
            error = self._error()
            self.close()
            raise error
        self._sqlite.sqlite3_progress_handler(
            self._database, STEPS, library.spend, ctypes.byref(self._budget)
        )
        self._sqlite.sqlite3_limit(self._database, sqlite3.SQLITE_LIMIT_LENGTH, most_value_bytes(size))
        for setting in SETTINGS:
            self.fetch(setting, "")

    def fetch(self, sql: str, kinds: str, *, most_rows: int = 0) -> Rows:
        """Run a query.

        Args:
            sql: A statement.
            kinds: Of each column: "i" for integers, "r" for reals, "t" for texts, each with NULL. The
                statement converts values to the last two.
            most_rows: Number of rows that is expected at most.

        Raises:
            sqlite3.Error: SQLite cannot run it.
        """
        self._budget.value = count_calls(self._size)
        statement = ctypes.c_void_p()
        if self._sqlite.sqlite3_prepare_v2(self._database, sql.encode(), -1, ctypes.byref(statement), None):
            raise self._error()
        columns = (_Column * max(len(kinds), 1))(*(_Column(kind="irt".index(kind)) for kind in kinds))
        try:
            return self._read(statement, kinds, columns, most_rows)
        finally:
            self._sqlite.sqlite3_finalize(statement)
            for column in columns:
                self._library.own.free_texts(ctypes.byref(column))

    def _read(
        self, statement: ctypes.c_void_p, kinds: str, columns: ctypes.Array[_Column], most_rows: int
    ) -> Rows:
        most = self._size // LEAST_ROW_BYTES + _BLOCK_ROWS  # also rows of pragmas
        room, at, status = min(max(most_rows, 63), most) + 1, ctypes.c_int64(0), _ROW
        values = [np.empty(0, _DTYPES[kind]) for kind in kinds]
        masks = [np.empty(0, np.bool_) for _ in kinds]
        while status == _ROW:
            if at.value > most:
                raise _malformed()
            for arrays in (values, masks):
                for number, array in enumerate(arrays):
                    arrays[number] = np.empty(room, array.dtype)
                    arrays[number][: at.value] = array[: at.value]
            for column, array, mask in zip(columns, values, masks, strict=False):
                column.values, column.is_null = array.ctypes.data, mask.ctypes.data
            status = self._library.own.read_rows(
                self._library.functions, statement, len(kinds), columns, ctypes.byref(at), room
            )
            room *= 2
        if status != _DONE:
            raise _malformed() if self._budget.value < 0 else self._error()
        count = at.value
        return Rows(
            [
                _decode_texts(column, array[:count])
                if kind == "t"
                else _build_numbers(array[:count], mask[:count], column.nulls)
                for kind, column, array, mask in zip(kinds, columns, values, masks, strict=False)
            ],
            any(column.odd for column in columns),
        )

    def interrupt(self) -> None:
        """End the query that another thread runs."""
        self._sqlite.sqlite3_interrupt(self._database)

    def close(self) -> None:
        """Close the connection."""
        self._sqlite.sqlite3_close_v2(self._database)

    def _error(self) -> sqlite3.Error:
        message = self._sqlite.sqlite3_errmsg(self._database).decode("utf-8", "replace")
        return _make_error(message, self._sqlite.sqlite3_extended_errcode(self._database))


def _build_numbers(
    values: np.typing.NDArray[np.generic], is_null: np.typing.NDArray[np.bool_], nulls: int
) -> pl.Series:
    if nulls == 0:
        return pl.Series(values)
    return pl.Series(values).set(pl.Series(is_null), None)


def _decode_texts(column: _Column, codes: np.typing.NDArray[np.uint32]) -> pl.Series:
    # null for code 0
    data = ctypes.string_at(column.bytes, column.size)
    ends = np.frombuffer(ctypes.string_at(column.ends, 8 * column.count), np.int64)
    cuts = pairwise([0, *ends.tolist()])
    texts = [None, *(data[begin:end].decode("utf-8", "replace") for begin, end in cuts)]
    return pl.Series(texts, dtype=pl.String)[pl.Series(codes)]


def _make_error(message: str, code: int) -> sqlite3.Error:
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = code
    return error


def _malformed() -> sqlite3.Error:
    return _make_error("database disk image is malformed", sqlite3.SQLITE_CORRUPT)


class PlainConnection:
    """The same connection by Python's own module.

    Args:
        uri: Of the file.
        size: Of the file in bytes.

    Raises:
        sqlite3.Error: SQLite cannot open it.
    """

    def __init__(self, uri: str, size: int) -> None:
        self._size, self._budget = size, 0
        self._database = sqlite3.connect(
            uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        self._database.text_factory = bytes
        self._database.set_progress_handler(self._spend, STEPS)
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most_value_bytes(size))
        for setting in SETTINGS:
            self.fetch(setting, "")

    def _spend(self) -> bool:
        self._budget -= 1
        return self._budget < 0

    def fetch(self, sql: str, kinds: str, *, most_rows: int = 0) -> Rows:
        """Run a query; see `CompiledConnection`."""
        self._budget = count_calls(self._size)
        columns: list[list[pl.Series]] = [[pl.Series([], dtype=_TYPES[kind])] for kind in kinds]
        is_odd, count = False, 0
        try:
            cursor = self._database.execute(sql)
            while rows := cursor.fetchmany(_BLOCK_ROWS):
                count += len(rows)
                if count > self._size // LEAST_ROW_BYTES + _BLOCK_ROWS:
                    raise _malformed()
                for kind, blocks, values in zip(kinds, columns, zip(*rows, strict=True), strict=True):
                    if kind == "i" and not {*map(type, values)} <= {int, type(None)}:
                        is_odd = True
                    elif kind == "t":
                        texts = [value.decode("utf-8", "replace") if value else None for value in values]
                        blocks.append(pl.Series(texts, dtype=pl.String))
                    else:
                        blocks.append(pl.Series(values, dtype=_TYPES[kind]))
        except sqlite3.Error:
            if self._budget < 0:
                raise _malformed() from None
            raise
        return Rows([pl.concat(blocks) for blocks in columns], is_odd)

    def interrupt(self) -> None:
        """End the query that another thread runs."""
        self._database.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


Connection: TypeAlias = CompiledConnection | PlainConnection


class Database:
    """A SQLite file that several threads read, each by a connection of its own; from `open_database`."""

    def __init__(self, pool: ThreadPoolExecutor, connect: Callable[[], Connection]) -> None:
        self._pool, self._connect = pool, connect
        self._own = threading.local()
        self._connections: list[Connection] = []
        self._is_stopped = False

    def map(
        self,
        work: Callable[[Connection, T], R],
        items: Sequence[T],
        *,
        follow: Callable[[int], None] = lambda finished: None,
    ) -> list[R]:
        """Call a function with a connection and each item, in threads; returns the results in order.

        The main thread waits, so it hears Ctrl-C: all queries then end.

        Args:
            work: The function.
            items: The items.
            follow: Receives the number of the first items that are finished.
        """
        futures = [self._pool.submit(self._call, work, item) for item in items]
        results = []
        try:
            for future in futures:
                results.append(future.result())
                follow(len(results))
        except BaseException:
            self._is_stopped = True
            for future in futures:
                future.cancel()
            for connection in self._connections:
                connection.interrupt()
            raise
        return results

    def call(self, work: Callable[[Connection], R]) -> R:
        """Call a function with a connection; see `map`."""
        return self.map(lambda connection, _: work(connection), [None])[0]

    def _call(self, work: Callable[[Connection, T], R], item: T) -> R:
        if not hasattr(self._own, "connection"):
            self._own.connection = self._connect()
            self._connections.append(self._own.connection)
        if self._is_stopped:
            raise _make_error("interrupted", sqlite3.SQLITE_INTERRUPT)
        return work(self._own.connection, item)

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()


@contextmanager
def open_database(uri: str, size: int, *, threads: int) -> Iterator[Database]:
    """Open a SQLite file when it is first queried.

    Args:
        uri: Of the file.
        size: Of the file in bytes.
        threads: That read at the same time.
    """
    library = find_library()

    def connect() -> Connection:
        return PlainConnection(uri, size) if library is None else CompiledConnection(uri, size, library)

    database = Database(ThreadPoolExecutor(threads, thread_name_prefix="nsys-pp query"), connect)
    try:
        yield database
    finally:
        database.close()


_MAX_THREADS = 4
_SMALL_FILE_BYTES = 4_000_000  # read by one thread, and checked as a whole: SQLite takes 9 ms for each MB

_ORDER = "__row"  # column of a query: the number of the row


class _Export(Struct, frozen=True):
    catalog: dict[str, list[str]]  # columns of each table
    own_ids: frozenset[str]  # tables whose row ids the exporter chooses: they need not begin at 1
    programs: list[str]  # known tables and columns of which SQLite would make the values
    recorded: dict[str, str]  # exported names of tables by raw frame
    sources: list[Source]  # to read
    last_rows: dict[str, int]  # last row id of tables with row ids; exporters number rows from 1


def read_sqlite(path: Path, *, need: frozenset[Group]) -> RawReport:
    """Read a report that nsys exported as SQLite; it is never written to.

    Args:
        path: The export.
        need: Groups of tables and columns to read in addition to the session.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    uri = check_database(path)
    state = find_state(path)
    with _open_export(path, uri, need) as (database, export):
        sources = export.sources
        sizes = [export.last_rows.get(source.name, 0) * len(source.columns) for source in sources]
        order = sorted(range(len(sources)), key=sizes.__getitem__, reverse=True)  # threads finish together
        total = max(sum(sizes), 1)

        def follow(finished: int) -> None:
            share = sum(sizes[at] for at in order[:finished]) / total
            report_stage(f"read {share:.0%} of the tables", share)

        read = database.map(partial(_read_source, export), [sources[at] for at in order], follow=follow)
        rows = [rows for _, rows in sorted(zip(order, read, strict=True), key=lambda one: one[0])]
        frames = assemble((source.table.frame, own.rows) for source, own in zip(sources, rows, strict=True))
        tally = tally_rows(sources, frames)
        for source, own in zip(sources, rows, strict=True):
            leave_out(path, tally, source, own.refused)
        if need and export.programs:
            warnings.warn(f"`{path}`: `{'`, `'.join(export.programs)}` not read: {PROGRAMS}", stacklevel=4)
        suspects = _count_missing(path, tally, export)
        suspects |= {source.name for source, own in zip(sources, rows, strict=True) if not own.is_sound}
        if need and (damage := database.call(partial(_find_damage, path, export, sorted(suspects)))):
            warnings.warn(
                f"`{path}` is damaged, so rows may be missing or wrong (SQLite: {damage});"
                " `nsys-pp check` shows where",
                stacklevel=4,
            )
        lists_tables, counts = "tables" in need, export.last_rows
        unnumbered = [  # whose last row id is not their number of rows
            name
            for name in (export.catalog if lists_tables else export.recorded.values())
            if name in export.own_ids
            or name not in KNOWN
            or not 0 < export.last_rows.get(name, 0) <= state[0] // LEAST_ROW_BYTES
        ]
        try:
            counts = counts | database.call(partial(_count, unnumbered))
        except sqlite3.Error:  # a table that is not read may be damaged, as `nsys-pp check` says
            if lists_tables:
                raise
        tables = list_tables(export.catalog, counts) if lists_tables else ()
    if find_state(path) != state:  # tables are read at different times
        raise busy_error(path)
    recorded = {frame: counts.get(name, 0) for frame, name in export.recorded.items()}
    return RawReport(
        path=path,
        groups=need,
        frames=frames,
        recorded=recorded,
        tally=tally,
        tables=tables,
        lost=list_lost(sources, frames, export.programs),
    )


def check_sqlite(path: Path) -> None:
    """Read as little as it takes to refuse a file that is not an export of nsys: the names of its tables.

    Raises:
        ReportError: It cannot be opened, or is not an export of nsys.
    """
    with _open_export(path, check_database(path), frozenset()):
        pass


@contextmanager
def _open_export(path: Path, uri: str, need: frozenset[Group]) -> Iterator[tuple[Database, _Export]]:
    """Open a file and describe its tables; errors of SQLite become those of `read_sqlite`."""
    size, _ = state = find_state(path)
    threads = 1 if size <= _SMALL_FILE_BYTES else min(_MAX_THREADS, pl.thread_pool_size())
    try:
        with hold_file(path), ExitStack() as stack:
            database = stack.enter_context(open_database(uri, size, threads=threads))
            try:
                export = database.call(partial(_describe, need=need))
            except sqlite3.Error as error:
                if IMMUTABLE in uri or result_code(error) not in NO_LOCKS:
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
        raise busy_error(path) if find_state(path) != state else explain_sqlite(path, error) from error


def _describe(connection: Connection, *, need: frozenset[Group]) -> _Export:
    """Describe the tables. Views and virtual tables are programs."""
    for name in connection.fetch(HIDING, "t").columns[0]:
        raise hiding_error(name)
    *texts, key, kind = connection.fetch(
        "SELECT CAST(t.name AS TEXT), CAST(c.name AS TEXT), CAST(c.type AS TEXT), c.pk,"
        f" {UNSTORED}"
        " FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c"
        f" WHERE {STORED} ORDER BY t.name, c.cid",
        "tttii",
    ).columns
    catalog: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    without_row_ids: set[str] = set()  # a column of this name hides them
    rows = zip(*(text.fill_null("").to_list() for text in texts), key.to_list(), kind.to_list(), strict=True)
    programs = []
    for name, column, declared, at, of in rows:
        name, column = spell(name), spell(column)
        if of == 0:  # others are generated, hidden, or have a default that may be the value of each row
            catalog.setdefault(name, []).append(column)
        elif {name, column} <= KNOWN:
            programs.append(f"{name}.{column}")
        if column.lower() == ROW_ID:
            without_row_ids.add(name)
        if at:
            keys.setdefault(name, []).append(declared.upper())
    (others,) = connection.fetch(
        "SELECT CAST(name AS TEXT) FROM sqlite_master AS t"
        f" WHERE type IN ('table', 'view') AND NOT ({STORED})",
        "t",
    ).columns
    programs += [name for name in others if name is not None and spell(name) in KNOWN]
    recorded = name_recorded(catalog)
    sources = [*plan_sources(catalog, need, has_row_id=True)]
    names = {*recorded.values(), *(source.name for source in sources)}
    return _Export(
        catalog=catalog,
        own_ids=frozenset(name for name, declared in keys.items() if declared == ["INTEGER"]),
        programs=programs,
        recorded=recorded,
        sources=sources,
        last_rows=_find_last_rows(
            connection,
            sorted(({*catalog} if "tables" in need else names & catalog.keys()) - without_row_ids),
        ),
    )


def _find_last_rows(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    # of tables that have row ids
    if not names:
        return {}
    columns = (f"(SELECT coalesce(max({ROW_ID}), 0) FROM {quote_name(name)})" for name in names)
    try:
        rows = connection.fetch(f"SELECT {', '.join(columns)}", "i" * len(names))
    except sqlite3.Error as error:  # a table made WITHOUT ROWID has no such column
        if len(names) == 1:
            if result_code(error) != sqlite3.SQLITE_ERROR:
                raise
            return {}
        return {name: row for table in names for name, row in _find_last_rows(connection, [table]).items()}
    return {name: int(column[0] or 0) for name, column in zip(names, rows.columns, strict=True)}


class _Read(Struct, frozen=True):
    rows: pl.DataFrame  # from `shape_rows`
    refused: list[Refused]
    is_sound: bool  # all values are of their types, and rows are in order of their ids


def _read_source(export: _Export, connection: Connection, source: Source) -> _Read:
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
    frame, refused = drop_refused(source, frame)
    ids = next((ours for ours, theirs in source.columns.items() if theirs == ROW_ID), _ORDER)
    return _Read(
        rows=shape_rows(source, frame),
        refused=refused,
        is_sound=not is_exact and (ids not in frame.columns or frame[ids].is_sorted()),
    )


def _list_expressions(source: Source, *, has_row_id: bool, is_exact: bool) -> dict[str, tuple[str, str]]:
    """List the kind and the expression of each column.

    If `is_exact`, integers are converted from any storage class.
    """
    table, schema = source.table, SCHEMAS[source.table.frame]
    found = {_ORDER: ("i", ROW_ID)} if has_row_id and ROW_ID not in source.columns.values() else {}
    for ours, theirs in source.columns.items():
        column = theirs if theirs == ROW_ID else quote_name(theirs)
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
        return f"{quote_name(source.name)} NOT INDEXED"  # in order of the row ids
    # not all columns: computed ones would be computed
    columns = ", ".join(quote_name(name) for name in dict.fromkeys(source.columns.values()) if name != ROW_ID)
    return f"(SELECT {columns or 'NULL'}, row_number() OVER () AS {ROW_ID} FROM {quote_name(source.name)})"


def _write_condition(source: Source) -> str:
    table, conditions = source.table, []
    if table.any_of:
        present = [quote_name(source.columns[ours]) for ours in table.any_of if ours in source.columns]
        conditions.append(f"coalesce({', '.join(present)}, NULL) IS NOT NULL" if present else "0")
    if table.rows_named:
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in table.rows_named)
        conditions.append(f"{quote_name(source.columns['name'])} COLLATE BINARY IN ({names})")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _count_missing(path: Path, tally: RowTally, export: _Export) -> set[str]:
    """Count the missing rows of each table of events.

    SQLite numbers rows from 1, and the numbers have no gaps.

    Numbers of more rows than the file has room for are damaged themselves, and no count. Returns the tables
    that lack rows.
    """
    most, lacking = find_state(path)[0] // LEAST_ROW_BYTES, set()
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
    """Return SQLite's first complaint about a small file, or about suspect tables of a large one.

    Beside programs, which the check might run, tables alone are checked.
    """
    is_small = path.stat().st_size <= _SMALL_FILE_BYTES
    names = {source.name for source in export.sources} if is_small else {*suspects}
    try:
        programs = {*map(spell, connection.fetch(FIND_PROGRAMS, "t").columns[0])}
        for argument in ["1"] if is_small and not programs else map(quote_name, sorted(names - programs)):
            lines = connection.fetch(f"PRAGMA quick_check({argument})", "t").columns[0].drop_nulls()
            told = [line for text in lines for line in text.splitlines() if line[:3] != "***"]
            if told != ["ok"]:
                return next(iter(told), "malformed")
    except sqlite3.Error as error:
        if result_code(error) in LOCKED:
            raise
        return str(error)
    return None


def _count(names: Sequence[str], connection: Connection) -> dict[str, int]:
    """Count rows one by one: the count of a tree that has a page many times would not end."""
    counts = {}
    for name in names:
        rows = connection.fetch(f"SELECT count(*) FROM (SELECT 1 FROM {quote_name(name)} LIMIT -1)", "i")
        counts[name] = int(rows.columns[0][0])
    return counts
