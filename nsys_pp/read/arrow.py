"""Reader of the folders of `nsys export --type parquetdir` and `arrowdir`: one file per table."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import ExportedTable, Group, RawReport
from nsys_pp.read.broken_text import open_broken_text
from nsys_pp.read.plan import (
    assemble,
    list_tables,
    name_recorded,
    plan_sources,
    rows_to_read,
    shape_rows,
    tally_rows,
)
from nsys_pp.read.row_limits import check_row_counts
from nsys_pp.read.table import Source
from nsys_pp.read.tables import STRINGS_TABLE, TABLES
from nsys_pp.read.unreadable import check_regular

_SUFFIXES = (".parquet", ".arrow")
_SESSION_TABLES = next(table.names for table in TABLES if table.frame == "session")
_IPC_FILE_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_T = TypeVar("_T")


def is_table_directory(path: Path) -> bool:
    """Return whether `path` is one exported report, not a folder of reports."""
    try:
        return path.is_dir() and any((path / f"{STRINGS_TABLE}{suffix}").is_file() for suffix in _SUFFIXES)
    except PermissionError:  # listing the folder raises the error that users see
        return False


def has_session(path: Path) -> bool:
    """Return whether an exported folder has the session, as whole exports do; recipes of nsys leave parts of exports."""
    return any((path / f"{name}{suffix}").is_file() for name in _SESSION_TABLES for suffix in _SUFFIXES)


def read_table_directory(path: Path, *, need: frozenset[Group]) -> RawReport:
    """Read a report that nsys exported as a folder of tables.

    These tables have no row ids: the position of a row is its id, unless the exporter numbered the rows.

    Raises:
        ReportError: A table cannot be read.
    """
    files = list_table_files(path)
    catalog = {name: _with_file(file, _read_columns) for name, file in files.items()}
    recorded = name_recorded(catalog)
    sources = plan_sources(catalog, need, has_row_id=False)
    rows = {source.name: _with_file(files[source.name], _count_rows) for source in sources}
    check_row_counts(path, sources, rows)
    frames = assemble(
        (source.table.frame, _with_file(files[source.name], partial(_read_source, source)))
        for source in sources
    )
    rows |= {name: _with_file(files[name], _count_rows) for name in {*recorded.values()} - rows.keys()}
    counts = {frame: rows[name] for frame, name in recorded.items()}
    tally = tally_rows(sources, frames)
    tables: tuple[ExportedTable, ...] = ()
    if "tables" in need:
        tables = list_tables(catalog, {name: _with_file(file, _count_rows) for name, file in files.items()})
    return RawReport(path=path, groups=need, frames=frames, recorded=counts, tally=tally, tables=tables)


def list_table_files(path: Path) -> dict[str, Path]:
    """List the tables of an exported folder by name."""
    return {file.stem: file for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES}


def read_whole_table(file: Path) -> pl.DataFrame:
    """Read all columns of a table of an exported folder.

    Raises:
        ReportError: It cannot be read.
    """
    return _with_file(file, _read_whole)


def _read_whole(file: Path) -> pl.DataFrame:
    try:
        return _open(file).collect()
    except pl.exceptions.PolarsError as error:
        if not _is_broken_text(error):
            raise
        try:
            return open_broken_text(file)
        except (ValueError, struct.error, IndexError):
            raise error from None


def _is_broken_text(error: Exception) -> bool:
    return re.search("utf-?8", str(error), re.IGNORECASE) is not None


def _with_file(file: Path, read: Callable[[Path], _T]) -> _T:
    """Read a part of a table; errors name the file."""
    check_regular(file)
    try:
        return read(file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(". ")
        raise ReportError(
            f"`{file}` cannot be read: {reason}",
            "copy it again, or export the report again",
        ) from None


def _open(file: Path, columns: list[str] | list[int] | None = None) -> pl.LazyFrame:
    if file.suffix == ".parquet":
        return pl.scan_parquet(file, glob=False)
    if _is_ipc_file(file):
        return pl.scan_ipc(file, glob=False)
    return pl.read_ipc_stream(file, columns=columns).lazy()


def _is_ipc_file(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_IPC_FILE_MAGIC)) == _IPC_FILE_MAGIC


def _read_columns(file: Path) -> list[str]:
    if file.suffix == ".parquet" or _is_ipc_file(file):
        return _open(file).collect_schema().names()
    with file.open("rb") as stream:  # only the first message, the schema; an end of stream is appended
        head = stream.read(8)
        schema = head + stream.read(int.from_bytes(head[4:], "little")) + _END_OF_STREAM
    return pl.read_ipc_stream(io.BytesIO(schema)).columns


def _count_rows(file: Path) -> int:
    return int(_open(file, columns=[0]).select(pl.len()).collect().item())


def _read_source(source: Source, file: Path) -> pl.DataFrame:
    try:
        return _select_source(source, _open(file, columns=list(dict.fromkeys(source.columns.values()))))
    except pl.exceptions.PolarsError as error:
        if not _is_broken_text(error):
            raise
        try:
            return _select_source(source, open_broken_text(file).lazy())
        except (ValueError, struct.error, IndexError):
            raise error from None


def _select_source(source: Source, table: pl.LazyFrame) -> pl.DataFrame:
    columns = [pl.col(theirs).alias(ours) for ours, theirs in source.columns.items()]
    needs_row = "row" in source.table.columns and "row" not in source.columns
    if needs_row:
        table = table.with_row_index("__row", offset=1)
        columns.append(pl.col("__row").cast(pl.Int64).alias("row"))
    rows = table.select(columns)
    if names := rows_to_read(source.table):
        rows = rows.filter(pl.col("name").is_in(names))
    if present := [ours for ours in source.table.any_of if ours in source.columns]:
        rows = rows.filter(pl.any_horizontal(pl.col(ours).is_not_null() for ours in present))
    elif source.table.any_of:
        rows = rows.clear()
    return shape_rows(source, rows.collect())
