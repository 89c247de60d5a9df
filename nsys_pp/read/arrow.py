"""Folders of exported Arrow and Parquet tables, also with text that is not UTF-8, which nsys copies.

A single environment variable that is not UTF-8 makes polars reject the whole table. The column type that the
file declares is therefore changed from text to bytes, in a copy in memory, and the bytes are decoded here.
"""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import SCHEMAS, Group, RawReport
from nsys_pp.read.files import check_regular
from nsys_pp.read.names import TABLES, Source, spell
from nsys_pp.read.plan import (
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

# A column in the footer of Parquet (Thrift compact protocol): its name, converted type UTF8, and logical
# type STRING. The replacement, BSON (bytes), has the same length.
_PARQUET_TEXT = re.compile(rb"(\x18[\x01-\x7f])([^\x00-\x1f]+)\x25\x00\x4c\x1c\x00\x00")
_PARQUET_BYTES = rb"\g<1>\g<2>" + b"\x25\x28\x4c\xdc\x00\x00"
_ARROW_SCHEMA, _ARROW_BYTES, _ARROW_TEXT = 1, 4, 5  # of Arrow's enumerations `MessageHeader` and `Type`


def open_broken_text(file: Path) -> pl.DataFrame:
    """Read a table, with the replacement character in place of bytes that are not UTF-8.

    Raises:
        ValueError: The file differs from the form that nsys writes.
    """
    data = file.read_bytes()
    if file.suffix == ".parquet":
        # the footer is followed by its length and the magic number
        end = len(data) - 8
        start = end - int.from_bytes(data[end : end + 4], "little")
        footer = data[start:end]
        names = [match.group(2).decode() for match in _PARQUET_TEXT.finditer(footer)]
        data, names = data[:start] + _PARQUET_TEXT.sub(_PARQUET_BYTES, footer) + data[end:], names
        frame = pl.read_parquet(io.BytesIO(data))
    else:
        data, names = _declare_bytes_in_stream(data)
        frame = pl.read_ipc_stream(io.BytesIO(data))
    return frame.with_columns(
        frame[name].map_elements(lambda data: data.decode("utf-8", "replace"), return_dtype=pl.String)
        for name in names
    )


def _declare_bytes_in_stream(data: bytes) -> tuple[bytes, list[str]]:
    """Change text columns to bytes in the schema, the first message of a stream, which is a FlatBuffer.

    A table of the FlatBuffer refers to its vtable, which has the offsets of its fields; all offsets are
    relative.
    """
    if data[:4] != b"\xff\xff\xff\xff":
        raise ValueError("not a stream of messages")
    changed, names = bytearray(data), []

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", data, at)[0])

    def field(table: int, index: int) -> int:
        vtable = table - struct.unpack_from("<i", data, table)[0]
        size = struct.unpack_from("<H", data, vtable)[0]
        offset = struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0] if 4 + 2 * index < size else 0
        if not offset:
            raise ValueError("a field is missing")
        return int(table + offset)

    message = follow(8)  # after the continuation marker and the length
    if data[field(message, 1)] != _ARROW_SCHEMA:
        raise ValueError("the first message is not a schema")
    columns = follow(field(follow(field(message, 2)), 1))
    for index in range(struct.unpack_from("<I", data, columns)[0]):
        column = follow(columns + 4 + 4 * index)
        if data[field(column, 2)] == _ARROW_TEXT:
            changed[field(column, 2)] = _ARROW_BYTES
            name = follow(field(column, 0))
            names.append(data[name + 4 : name + 4 + struct.unpack_from("<I", data, name)[0]].decode())
    return bytes(changed), names


_SUFFIXES = (".parquet", ".arrow")
# Names of tables that other programs do not choose, in any case: an incomplete copy may lack each one
_MARK = re.compile(
    r"(StringIds|NVTX_EVENTS|(TARGET_INFO|CUPTI_ACTIVITY_KIND)_\w+)\.(parquet|arrow)", re.IGNORECASE
)
_SESSION_TABLES = next(table.names for table in TABLES if table.frame == "session")
_IPC_FILE_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_T = TypeVar("_T")


def is_table_directory(path: Path) -> bool:
    """Return whether `path` is one exported report, not a folder of reports."""
    try:
        return path.is_dir() and any(map(_MARK.fullmatch, (file.name for file in path.iterdir())))
    except PermissionError:  # listing the folder raises the error that users see
        return False


def has_session(path: Path) -> bool:
    """Return whether an exported folder has the session, as whole exports do.

    Recipes of nsys leave parts of exports.
    """
    return any((path / f"{name}{suffix}").is_file() for name in _SESSION_TABLES for suffix in _SUFFIXES)


_MORE_ROWS = 10_000  # than bytes: rows of a file whose values are equal may take none


def read_table_directory(path: Path, *, need: frozenset[Group]) -> RawReport:
    """Read a report that nsys exported as a folder of tables.

    These tables have no row ids: the position of a row is its id, unless the exporter numbered the rows.

    Raises:
        ReportError: A table cannot be read.
    """
    _try_apart(path, f"_read_directory(path, {need!a})")
    return _read_directory(path, need)


def _try_apart(path: Path, call: str) -> None:
    """Read in another process first: at some damaged tables polars does not raise, but ends its process."""
    code = f"import pathlib, sys; sys.path = {sys.path!a}; path = pathlib.Path({str(path)!a})\n"
    code += f"from nsys_pp.read.arrow import _read_directory, _read_whole\n{call}"
    command = [sys.executable, "-I", "-c", code]  # without the working directory among its modules
    status = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    if status not in (0, 1):  # 1: an error, which reading it here raises, too
        raise ReportError(
            f"`{path}` cannot be read: polars stopped with status {status} at one of its tables",
            "copy it again, or export the report again; sound tables need more memory than there is",
        )


def _read_directory(path: Path, need: frozenset[Group]) -> RawReport:
    files = list_table_files(path)
    columns = {name: _spell_names(_with_file(file, _read_columns)) for name, file in files.items()}
    catalog = {name: [*theirs] for name, theirs in columns.items()}
    recorded = name_recorded(catalog)
    sources = [*plan_sources(catalog, need, has_row_id=False)]
    rows = {source.name: _with_file(files[source.name], _count_rows) for source in sources}
    check_row_counts(path, sources, rows)
    for name, count in rows.items():
        if count > _MORE_ROWS + files[name].stat().st_size:
            raise ReportError(
                f"`{files[name]}` is no table of nsys: it has {count:,} rows, more than bytes",
                "export the report again",
            )
    read = [
        _with_file(files[source.name], partial(_read_source, source, columns[source.name]))
        for source in sources
    ]
    frames = assemble((source.table.frame, rows) for source, (rows, _) in zip(sources, read, strict=True))
    rows |= {name: _with_file(files[name], _count_rows) for name in {*recorded.values()} - rows.keys()}
    counts = {frame: rows[name] for frame, name in recorded.items()}
    tally = tally_rows(sources, frames)
    for source, (_, refused) in zip(sources, read, strict=True):
        leave_out(path, tally, source, refused)
    return RawReport(
        path=path,
        groups=need,
        frames=frames,
        recorded=counts,
        tally=tally,
        tables=list_tables(catalog, {name: _with_file(file, _count_rows) for name, file in files.items()})
        if "tables" in need
        else (),
        lost=list_lost(sources, frames),
    )


def list_table_files(path: Path) -> dict[str, Path]:
    """List the tables of an exported folder by name."""
    files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES}
    return {name: files[theirs] for name, theirs in _spell_names(files).items()}


def _spell_names(names: Iterable[str]) -> dict[str, str]:
    """Return names of tables or columns by those that nsys writes, which are equal in any case."""
    return {spell(name): name for name in sorted(names, key=lambda name: name == spell(name))}  # the last one


def read_whole_tables(path: Path, names: Collection[str] | None = None) -> Iterator[tuple[str, pl.DataFrame]]:
    """Read tables of an exported folder with all columns: those of these names that it has, or all.

    Raises:
        ReportError: A table cannot be read.
    """
    names = None if names is None else [*names]
    _try_apart(path, f"for _ in _read_whole(path, {names!a}): pass")
    return _read_whole(path, names)


def _read_whole(path: Path, names: Sequence[str] | None) -> Iterator[tuple[str, pl.DataFrame]]:
    files = list_table_files(path).items()
    return ((name, _with_file(file, _read_table)) for name, file in files if names is None or name in names)


def _read_table(
    file: Path,
    select: Callable[[pl.LazyFrame], pl.DataFrame] = pl.LazyFrame.collect,
    columns: list[str] | None = None,
) -> pl.DataFrame:
    """Read some columns, and rows of them; where text is not UTF-8, all columns are read as bytes first."""
    try:
        return select(_open(file, columns))
    except pl.exceptions.PolarsError as error:
        if not re.search("utf-?8", str(error), re.IGNORECASE):
            raise
        try:
            return select(open_broken_text(file).lazy())
        except (ValueError, struct.error, IndexError):
            raise error from None


def _with_file(file: Path, read: Callable[[Path], _T]) -> _T:
    # errors name the file
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
    file = file.absolute()  # polars takes a `~` at the beginning for the home folder
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
    # polars panics at a stream without columns
    return int(_open(file, columns=[0]).select(pl.len()).collect().item()) if _read_columns(file) else 0


def _read_source(source: Source, named: Mapping[str, str], file: Path) -> tuple[pl.DataFrame, list[Refused]]:
    columns = [named[name] for name in dict.fromkeys(source.columns.values())]
    rows, refused = drop_refused(source, _read_table(file, partial(_select_source, source, named), columns))
    return shape_rows(source, rows), refused


def _select_source(source: Source, named: Mapping[str, str], table: pl.LazyFrame) -> pl.DataFrame:
    types, schema, columns = table.collect_schema(), SCHEMAS[source.table.frame], []
    for ours, theirs in source.columns.items():
        dtype, column = types[named[theirs]], pl.col(named[theirs])
        if dtype == pl.Binary and ours != "binary":
            dtype = pl.String()
            column = column.map_elements(lambda data: data.decode("utf-8", "replace"), return_dtype=dtype)
        if dtype.is_nested() or dtype.is_temporal() or dtype.is_decimal():  # of types that no exporter writes
            columns.append(column.is_not_null().alias(f"{ours}_refused"))
            column = pl.repeat(None, pl.len())
        elif schema[ours].is_integer() or source.table.columns[ours].words is not None:
            if dtype == pl.String:
                column = column.str.strip_chars().replace("", None)
            if dtype == pl.String or dtype.is_float():
                whole = column.cast(pl.Int64, strict=False)
                whole = whole if dtype == pl.String else pl.when(whole == column).then(whole)
                columns.append((column.is_not_null() & whole.is_null()).alias(f"{ours}_refused"))
                column = whole
        columns.append(column.alias(ours))
    if "row" in source.table.columns and "row" not in source.columns:
        table = table.with_row_index("__row", offset=1)
        columns.append(pl.col("__row").cast(pl.Int64).alias("row"))
    rows = table.select(columns)
    if named := source.table.rows_named:
        rows = rows.filter(pl.col("name").is_in([*named]))
    if source.table.any_of:
        present = [pl.col(ours).is_not_null() for ours in source.table.any_of if ours in source.columns]
        rows = rows.filter(pl.any_horizontal(pl.lit(value=False), *present))
    return rows.collect()
