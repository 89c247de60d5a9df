"""A SQLite export written from raw frames.

It has the tables and columns that nsys-pp reads, and nothing else.

The file is new: it has no free pages, no definition of the original, and no text that is not in the frames.
"""

from __future__ import annotations

import errno
import sqlite3
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
from msgspec import Struct

from nsys_pp.errors import ReportError
from nsys_pp.frames.ids import strip_uuid
from nsys_pp.frames.raw import ALL_GROUPS, SCHEMAS, Group, RawReport
from nsys_pp.output.files import replace_file
from nsys_pp.read import read_report
from nsys_pp.read.arrow import is_table_directory, list_table_files
from nsys_pp.read.files import check_database
from nsys_pp.read.names import COUNTED, ENVIRONMENT_ROWS, METRIC_TABLES, ROW_ID, TABLES, Column, Table
from nsys_pp.scrubbing.pseudonyms import Identities, Pseudonyms
from nsys_pp.scrubbing.texts import (
    copy_folder_tables,
    find_in,
    find_people,
    find_texts,
    list_columns,
    list_texts,
    open_database,
    quote,
    remove_unused,
    replace_texts,
)

_SESSION = ("strings", "facts", "launcher")  # tables of every export
_SHARED = {"payloads": "nvtx"}  # frames of the rows of another frame's table


def write_database(path: Path, raw: RawReport) -> None:
    """Write raw frames as a SQLite export, whose raw frames are equal.

    Args:
        path: An empty file.
        raw: All groups of a report.

    Raises:
        ReportError: Rows of NVTX events have no numbers of their own, as in some exports to folders.
        OSError: The disk is full, or cannot be written.
    """
    with _translated_errors(), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for name, columns, rows in _list_tables(raw):
            definition = ", ".join(f"{quote(column)} {kind}" for column, kind in columns.items())
            connection.execute(f"CREATE TABLE IF NOT EXISTS {quote(name)} ({definition})")
            places = ", ".join("?" * (1 + len(columns)))
            listed = ", ".join(map(quote, [ROW_ID, *columns]))
            connection.executemany(f"INSERT INTO {quote(name)} ({listed}) VALUES ({places})", rows)
        connection.execute("COMMIT")


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Convert errors of SQLite into errors of the system.

    Raises:
        OSError: The disk is full, or cannot be written.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(errno.ENOSPC if "full" in str(error) else errno.EIO, str(error)) from error


_Rows = Iterator[tuple[object, ...]]


def _list_tables(raw: RawReport) -> Iterator[tuple[str, Mapping[str, str], _Rows]]:
    """List the name, the columns with their types, and the numbered rows of each table."""
    yield from _list_facts(raw)
    kept = (*TABLES, *(table for table in METRIC_TABLES if len(raw[table.frame])))
    of_metrics = {table.frame for table in kept[len(TABLES) :]}
    written: set[str] = set()
    for frame in dict.fromkeys(table.frame for table in kept):
        if frame in ("facts", "launcher", *_SHARED) or not (
            frame in raw.recorded or frame in _SESSION or frame in of_metrics
        ):
            continue
        table = next(table for table in kept if table.frame == frame)
        frames = [raw[frame]]
        columns = dict(table.columns)
        for other in (other for other, owner in _SHARED.items() if owner == frame):
            frames.append(raw[other].drop("thread"))
            columns |= next(table.columns for table in TABLES if table.frame == other)
        written.add(table.names[0])
        yield _export_frame(table, columns, frames, raw.recorded.get(frame))
    for frame in dict.fromkeys(table.frame for table in COUNTED):
        if frame not in of_metrics and (count := raw.recorded.get(frame)) is not None:
            table = next(table for table in COUNTED if table.frame == frame)
            if table.names[0] in written:  # with all rows, by a frame that is read
                continue
            names = dict.fromkeys(table.must_have or ("id",), "INTEGER")
            # only counted, by the number of the last row
            last = [(count, *[None] * len(names))] if count else []
            yield table.names[0], names, iter(last)


def _list_facts(raw: RawReport) -> Iterator[tuple[str, Mapping[str, str], _Rows]]:
    """List the tables of names and values; launcher variables as nsys records them."""
    variable = next(name for name, kind in ENVIRONMENT_ROWS.items() if kind == "variable")
    by_table: dict[str, list[tuple[str, str | None]]] = {}
    for table in TABLES:
        if table.frame not in ("facts", "launcher"):
            continue
        rows = by_table.setdefault(table.names[0], [])
        if table.frame == "facts":
            exported = {ours: theirs for theirs, ours in reversed([*table.rows_named.items()])}
            rows += [(exported[name], value) for name, value in raw["facts"].rows() if name in exported]
    first = next(table.names[0] for table in TABLES if table.frame == "launcher")
    by_table[first] += [
        (variable, f'{name}="{value}"') for name, value in raw["launcher"].drop_nulls().rows()
    ]
    for name, facts in by_table.items():
        if facts:
            numbered = ((number, *fact) for number, fact in enumerate(facts, start=1))
            yield name, {"name": "TEXT", "value": "TEXT"}, numbered


def _export_frame(
    table: Table, columns: Mapping[str, Column], frames: list[pl.DataFrame], count: int | None
) -> tuple[str, Mapping[str, str], _Rows]:
    """Export a frame, or several that share the rows of a table."""
    ours = frames[0]
    for other in frames[1:]:
        if not other.is_empty():
            ours = ours.join(other, on="row", how="full", coalesce=True)
    ours = _number_rows(ours, table, count)
    exported: dict[str, list[str]] = {}
    for name, column in columns.items():
        if name in ours.columns and column.names[0] != ROW_ID:
            exported.setdefault(column.names[0], []).append(name)
    values = [_untranslate(ours, names, columns).alias(theirs) for theirs, names in exported.items()]
    types = {
        column.name: "INTEGER" if column.dtype.is_integer() else "REAL" if column.dtype.is_float() else "TEXT"
        for column in values
    }
    result = pl.DataFrame([ours["_row"], *values])
    return table.names[0], types, iter(result.iter_rows())


def _number_rows(frame: pl.DataFrame, table: Table, count: int | None) -> pl.DataFrame:
    """Add `_row`, the number of each row: its own, else such that the last one is `count`."""
    if "row" not in frame.columns:
        first = max((count or 0) - len(frame), 0) + 1
        return frame.with_columns(_row=pl.int_range(first, first + len(frame), dtype=pl.Int64, eager=True))
    if frame["row"].has_nulls() or frame["row"].n_unique() < len(frame):
        raise ReportError(
            f"rows of `{table.names[0]}` have no numbers of their own",
            "scrub an export of `nsys export --type sqlite`",
        )
    frame = frame.with_columns(_row="row").sort("_row")
    last = frame["_row"].max()
    if count and (last is None or int(last) < count):  # type: ignore[arg-type]
        # the last row was of an unknown kind, and is not read: its number is the count of rows
        frame = pl.concat([frame, pl.DataFrame({"_row": [count]})], how="diagonal")
    return frame


def _untranslate(frame: pl.DataFrame, names: list[str], columns: Mapping[str, Column]) -> pl.Series:
    """Return the exported values of a column, which may be the source of several columns of the frame."""
    described = [columns[name] for name in names]
    if described[0].words is None:
        return frame[names[0]]
    numbers = {number for column in described for number in column.words or {}}
    beyond = {column.words_beyond[0] for column in described if column.words_beyond is not None}
    ordered = sorted(numbers | beyond)
    words = [
        pl.Series(name, [_translate(column, number) for number in ordered], dtype=frame.schema[name])
        for name, column in zip(names, described, strict=True)
    ]
    known = pl.DataFrame([*words, pl.Series("_number", ordered)]).unique(
        names, keep="first", maintain_order=True
    )
    found = frame.select(names).join(known, on=names, how="left", nulls_equal=True, maintain_order="left")
    return found["_number"]


def _translate(column: Column, number: int) -> object:
    if column.words_beyond is not None and number >= column.words_beyond[0]:
        return column.words_beyond[1]
    return (column.words or {}).get(number)


def list_tables(path: Path) -> list[str]:
    """List the tables of an exported folder, or the real ones of a SQLite file.

    Without views and virtual tables.
    """
    if is_table_directory(path):
        return sorted(list_table_files(path))
    with open_database(path) as connection:
        return sorted(name for name in list_columns(connection) if not name.startswith("sqlite_"))


def copy_tables(path: Path, copy: Path, names: Collection[str]) -> None:
    """Copy some tables as they are, without indices, generated columns and definitions.

    Args:
        path: The original.
        copy: The copy, which has none of the tables.
        names: Tables of the original.
    """
    with _translated_errors(), closing(sqlite3.connect(copy, isolation_level=None, uri=True)) as connection:
        if is_table_directory(path):
            copy_folder_tables(path, connection, names)
            return
        connection.execute("ATTACH ? AS original", (check_database(path),))
        of_tables = list_columns(connection, "original")
        for name in sorted(names):
            columns = ", ".join(map(quote, of_tables[name]))
            connection.execute(f"CREATE TABLE {quote(name)} ({columns})")
            connection.execute(f"INSERT INTO {quote(name)} SELECT {columns} FROM original.{quote(name)}")


def assert_equal_frames(path: Path, raw: RawReport, copy: RawReport) -> None:
    """Compare the frames of a copy with the written ones.

    Raises:
        ReportError: They differ.
    """
    for name in SCHEMAS:
        if not raw[name].equals(copy[name], null_equal=True):
            raise ReportError(
                f"the copy of `{path}` would differ from it in its {name}", "please report this"
            )
    different = {
        name for name in {*raw.recorded, *copy.recorded} if raw.recorded.get(name) != copy.recorded.get(name)
    }
    if different:
        raise ReportError(
            f"the copy of `{path}` would differ from it in its numbers of {', '.join(sorted(different))}",
            "please report this",
        )


_GROUPS: frozenset[Group] = ALL_GROUPS | {"metric_sums"}


def find_identities(path: Path) -> Identities:
    """Find the names of machines, GPUs and users in a report, and its secrets.

    Raises:
        ReportError: It cannot be read.
    """
    raw = read_report(path, need=frozenset())
    facts = raw["facts"].drop_nulls()
    values = {name: set(facts.filter(pl.col("name") == name)["value"]) for name in facts["name"].unique()}
    ids = values.get("hardware_id", set()) | values.get("system_id", set())
    uuids = pl.concat([raw["gpus"]["uuid"], raw["cuda_devices"]["uuid"]]).drop_nulls()
    return find_people(path).joined(
        Identities(
            hosts=frozenset(values.get("hostname", set())),
            # a process namespace, which is no machine's own
            machine_ids=frozenset(value for value in ids if not value.startswith("pid:")),
            uuids=frozenset(strip_uuid(uuid) for uuid in uuids),
        )
    )


class ScrubbedReport(Struct, frozen=True):
    """Contents of a report that its copy lacks."""

    text_count: int  # distinct texts
    tables: list[str]  # in order of their names


def scrub_report(
    path: Path, output: Path, pseudonyms: Pseudonyms, *, keep_tables: Sequence[str] = (), force: bool
) -> ScrubbedReport:
    """Write a copy of a report with the tables, columns and texts that analyses read, and no others.

    Args:
        path: A SQLite export, or an exported folder of tables.
        output: The copy.
        pseudonyms: Replacement of names.
        keep_tables: Other tables to copy as they are.
        force: Replace an existing file.

    Raises:
        ReportError: The report cannot be read, or the copy would differ from what was to be written.
        OutputError: The output exists, or cannot be written.
    """
    raw = remove_unused(read_report(path, need=_GROUPS))
    raw.release("generic_events")  # with texts of all kinds
    raw = replace_texts(raw, pseudonyms)
    with replace_file(output, force=force) as target:
        write_database(target, raw)
        assert_equal_frames(path, raw, read_report(target, need=_GROUPS))
        others = sorted({*list_tables(path)} - {*list_tables(target)})
        _copy_others(path, target, [name for name in keep_tables if name in others])
        return ScrubbedReport(
            text_count=_check_texts(path, target), tables=[name for name in others if name not in keep_tables]
        )


def _copy_others(path: Path, target: Path, names: Sequence[str]) -> None:
    """Copy tables as they are, with a warning."""
    if not names:
        return
    copy_tables(path, target, names)
    listed = ", ".join(f"`{name}`" for name in names)
    warnings.warn(f"`{path}`: {listed} copied as they are, with all their texts", stacklevel=4)


def _check_texts(path: Path, copy: Path) -> int:
    """Check that the bytes of a copy hold no text that it should lack; return the number of these."""
    kept = list_texts(copy)
    removed = list_texts(path) - kept
    found = find_texts(copy, removed)
    # a removed text may be part of a kept one
    leaked = found - find_in(b"\0".join(sorted(kept)), sorted(found)) if found else found
    if leaked:
        raise ReportError(
            f"the copy of `{path}` would hold {len(leaked)} texts that were to be removed",
            "please report this",
        )
    return len(removed)
