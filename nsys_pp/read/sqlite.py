"""Connections to a SQLite file whose queries give columns, and the threads that use them.

`sqlite.c` steps a statement and fills arrays, with the SQLite that Python itself has loaded: its functions
are found through the module `_sqlite3`. Where they cannot be found, as in an interpreter that hides them,
Python's own module gives the rows, in some three times the time. The columns are the same, and so are
SQLite's words for what is wrong with a file.

A query ends after so many steps as no file of its size can need: a tree that has a page many times would keep
SQLite busy for ever.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.compiled import load_library

T = TypeVar("T")
R = TypeVar("R")
_OPEN = 0x1 | 0x40 | 0x8000  # SQLITE_OPEN_READONLY, _URI, _NOMUTEX: one thread at a time uses a connection
_ROW, _DONE = 100, 101  # of sqlite3.h
_STEPS = 10_000  # between two looks at the budget
_STEPS_PER_BYTE, _MORE_STEPS = 40, 10_000_000  # a row takes 5 bytes and some 20 steps, and a check of it more
_LEAST_ROW_BYTES = 5  # pointer, length, row id, length of the header, one value
_BLOCK_ROWS = 65_536
_FEW_TEXTS = 2_000  # a query takes longer than a loop
_MALFORMED = "database disk image is malformed"  # SQLite's words
_SETTINGS = (
    "PRAGMA trusted_schema = OFF",  # programs in a file are not run
    "PRAGMA cell_size_check = ON",  # damaged pages are found when they are read
    "PRAGMA ignore_check_constraints = ON",  # by `quick_check`, which would run these programs
)
_DTYPES = {"i": np.int64, "r": np.float64, "t": np.uint32}
_TYPES = {"i": pl.Int64, "r": pl.Float64, "t": pl.String}


class Rows(Struct, frozen=True):
    """Result of a query."""

    columns: list[pl.Series]  # Int64, Float64, or String without empty texts
    is_odd: bool  # integers are stored as something else, and are wrong here


class Connection(Protocol):
    """A connection to a SQLite file."""

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

    def interrupt(self) -> None:
        """End the query that another thread runs: it raises an error."""

    def close(self) -> None:
        """Close the connection."""


class _Column(ctypes.Structure):
    """`Column` of `sqlite.c`."""

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
        "sqlite3_interrupt": (pointer,),
        "sqlite3_progress_handler": (pointer, number, pointer, pointer),
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
    return _Library(sqlite, own, (pointer * len(used))(*addresses), ctypes.cast(own.spend, pointer))


class CompiledConnection:
    """A `Connection` by `sqlite.c`.

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
        status = self._sqlite.sqlite3_open_v2(uri.encode(), ctypes.byref(self._database), _OPEN, None)
        if status:
            error = self._error()
            self.close()
            raise error
        self._sqlite.sqlite3_progress_handler(
            self._database, _STEPS, library.spend, ctypes.byref(self._budget)
        )
        for setting in _SETTINGS:
            self.fetch(setting, "")

    def fetch(self, sql: str, kinds: str, *, most_rows: int = 0) -> Rows:
        """Run a query; see `Connection`."""
        self._budget.value = _count_calls(self._size)
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
        most = self._size // _LEAST_ROW_BYTES + _BLOCK_ROWS  # also rows of pragmas
        room, at, status = min(max(most_rows, 63), most) + 1, ctypes.c_int64(0), _ROW
        values = [np.empty(0, _DTYPES[kind]) for kind in kinds]
        masks = [np.empty(0, np.bool_) for _ in kinds]
        while status == _ROW:
            if at.value > most:
                raise sqlite3.DatabaseError(_MALFORMED)
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
            raise sqlite3.DatabaseError(_MALFORMED) if self._budget.value < 0 else self._error()
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
        return sqlite3.DatabaseError(self._sqlite.sqlite3_errmsg(self._database).decode("utf-8", "replace"))


def _build_numbers(
    values: np.typing.NDArray[np.generic], is_null: np.typing.NDArray[np.bool_], nulls: int
) -> pl.Series:
    if nulls == 0:
        return pl.Series(values)
    dtype = pl.Int64 if values.dtype == np.int64 else pl.Float64
    if nulls == len(values):
        return pl.Series([None], dtype=dtype).new_from_index(0, nulls)
    return pl.Series(values).set(pl.Series(is_null), None)


def _decode_texts(column: _Column, codes: np.typing.NDArray[np.uint32]) -> pl.Series:
    """Return the text of each code; null for 0."""
    data = ctypes.string_at(column.bytes, column.size) if column.size else b""
    ends = np.frombuffer(ctypes.string_at(column.ends, 8 * column.count) if column.count else b"", np.int64)
    starts = np.append(0, ends)[:-1]
    if len(codes) <= _FEW_TEXTS:
        cut = [data[begin:end].decode("utf-8", "replace") for begin, end in zip(starts, ends, strict=True)]
        few = [None, *cut]
        return pl.Series([few[code] for code in codes.tolist()], dtype=pl.String)
    slices = pl.lit(data).bin.slice(pl.lit(pl.Series(starts)), pl.lit(pl.Series(ends - starts)))
    texts = decode_text(pl.select(slices.alias("")).to_series())
    words = pl.concat([pl.Series([None], dtype=pl.String), texts])
    return words.gather(pl.Series(codes))


def decode_text(values: pl.Series) -> pl.Series:
    """Decode bytes as text; bytes that are not UTF-8 become the replacement character."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.PolarsError:
        repaired = [None if value is None else value.decode("utf-8", "replace") for value in values]
        return pl.Series(values.name, repaired, dtype=pl.String)


def _count_calls(size: int) -> int:
    """Return how often a query on a file of this size may ask for its budget."""
    return (_STEPS_PER_BYTE * size + _MORE_STEPS) // _STEPS


class PlainConnection:
    """A `Connection` by Python's own module.

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
        self._database.set_progress_handler(self._spend, _STEPS)
        for setting in _SETTINGS:
            self.fetch(setting, "")

    def _spend(self) -> bool:
        self._budget -= 1
        return self._budget < 0

    def fetch(self, sql: str, kinds: str, *, most_rows: int = 0) -> Rows:
        """Run a query; see `Connection`."""
        self._budget = _count_calls(self._size)
        columns: list[list[pl.Series]] = [[pl.Series([], dtype=_TYPES[kind])] for kind in kinds]
        is_odd, count = False, 0
        try:
            cursor = self._database.execute(sql)
            while kinds and (rows := cursor.fetchmany(_BLOCK_ROWS)):
                count += len(rows)
                if count > self._size // _LEAST_ROW_BYTES + _BLOCK_ROWS:
                    raise sqlite3.DatabaseError(_MALFORMED)
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
                raise sqlite3.DatabaseError(_MALFORMED) from None
            raise
        return Rows([pl.concat(blocks) for blocks in columns], is_odd)

    def interrupt(self) -> None:
        """End the query that another thread runs."""
        self._database.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


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
            raise sqlite3.OperationalError("interrupted")
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
