"""Plan of the tables and columns to read from an export, and conversion of its rows to raw frames."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from nsys_pp.arrays.search import group_pairs
from nsys_pp.errors import ReportError
from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.raw import (
    EXPECTED,
    ON_REQUEST,
    REQUIRED,
    SCHEMAS,
    SHOW_GROUPS,
    TIMES,
    ExportedTable,
    Group,
    RowTally,
)
from nsys_pp.read.names import (
    COUNTED,
    LAUNCHER_VARIABLE,
    ROW_ID,
    TABLES,
    TABLES_ON_REQUEST,
    Column,
    Source,
    Table,
    describe_unknown,
    is_enumeration,
)
from nsys_pp.units import format_count


class Refused(NamedTuple):
    """Values of a column that are not of its type."""

    reason: str
    row_count: int
    is_row: bool  # their rows are left out, too


# Tables of an export with their columns.
Catalog = Mapping[str, Sequence[str]]


def plan_sources(catalog: Catalog, need: frozenset[Group], *, has_row_id: bool) -> Iterator[Source]:
    """Yield the tables of the export that fill raw frames, with their columns.

    Args:
        catalog: The tables of the export.
        need: Groups of tables and columns to read.
        has_row_id: Rows of this kind of export have ids.
    """
    on_request = _list_on_request(catalog) if need & ON_REQUEST else ()
    for table in (*TABLES, *on_request):
        name = _present_name(table, catalog)
        useful = {
            group
            for group in need - _superseded(table, catalog)
            if table.useless_without.get(group, name) in catalog
        }
        if name is None or not _is_needed(table.groups, useful):
            continue
        present = {*catalog[name], ROW_ID} if has_row_id else set(catalog[name])
        found = {
            ours: next((theirs for theirs in column.names if theirs in present), None)
            for ours, column in table.columns.items()
            if _is_needed(column.groups, useful)
        }
        lost = (ours for ours in EXPECTED.get(table.frame, ()) if found.get(ours, ours) is None)
        if columns := {ours: theirs for ours, theirs in found.items() if theirs is not None}:
            yield Source(
                table, name, columns, tuple(f"{name}.{table.columns[ours].names[0]}" for ours in lost)
            )


def list_tables(catalog: Catalog, row_counts: Mapping[str, int]) -> tuple[ExportedTable, ...]:
    """List all tables of an export by name, with the raw frames and groups of each.

    Enumerations are left out.

    Args:
        catalog: The tables of the export.
        row_counts: Number of rows of each.
    """
    read = [
        (name, table)
        for table in (*TABLES, *_list_on_request(catalog))
        if (name := _present_name(table, catalog)) is not None
    ]
    counted = {_present_name(table, catalog) for table in COUNTED}
    known = counted | {name for name, table in read if table.title != name}
    return tuple(
        ExportedTable(
            name=name,
            row_count=row_counts[name],
            frames=tuple(dict.fromkeys(table.frame for of, table in read if of == name)),
            groups=tuple(
                dict.fromkeys(
                    group
                    for of, table in read
                    if of == name
                    for group in table.groups
                    if group not in _superseded(table, catalog)
                )
            ),
            is_known=name in known,
        )
        for name in sorted(catalog)
        if not is_enumeration(name)
    )


def _list_on_request(catalog: Catalog) -> list[Table]:
    known = {_present_name(table, catalog) for table in (*TABLES, *TABLES_ON_REQUEST)}
    unknown = (describe_unknown(name, columns) for name, columns in catalog.items() if name not in known)
    return [*TABLES_ON_REQUEST, *(table for table in unknown if table is not None)]


def name_recorded(catalog: Catalog) -> dict[str, str]:
    """Return the exported name of each known table that the export has, by the name of its raw frame."""
    present = ((table.frame, _present_name(table, catalog)) for table in (*TABLES, *COUNTED))
    skip = {"payloads", "facts", "launcher", "strings"}  # auxiliary tables, not recorded activity
    return {frame: name for frame, name in present if name is not None and frame not in skip}


def tally_rows(sources: Iterable[Source], frames: Mapping[str, pl.DataFrame]) -> RowTally:
    """Count the rows that were read.

    Tables of names and values are not counted: only rows of an allow-list are ever read. Neither is a second
    read of the same rows (payloads of NVTX events). Tables that share a raw frame are counted by their
    exported names.
    """
    tally = RowTally()
    by_table: dict[str, dict[str, int]] = {}
    for source in sources:
        table, frame = source.table, frames[source.table.frame]
        if table.any_of or table.rows_named:
            continue
        if not table.title:
            tally.read[table.frame], tally.sources[table.frame] = len(frame), source.name
            continue
        if table.frame not in by_table:  # of many tables
            by_table[table.frame] = dict(frame["table"].value_counts().rows())
        tally.read[source.name] = by_table[table.frame].get(source.name, 0)
        tally.sources[source.name] = source.name
    return tally


def list_lost(
    sources: Iterable[Source], frames: Mapping[str, pl.DataFrame], others: Sequence[str] = ()
) -> tuple[str, ...]:
    """List the columns of `EXPECTED` that tables with rows lack, but those of `others`."""
    lost = (name for source in sources if len(frames[source.table.frame]) for name in source.lost)
    return tuple(name for name in lost if name not in others)


def assemble(parts: Iterable[tuple[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Concatenate the parts of each raw frame, in order.

    Args:
        parts: Names of raw frames, each with rows from `shape_rows`.

    Returns:
        All frames of `nsys_pp.frames.raw.SCHEMAS`, each with its schema; frames that were not read are empty.
    """
    by_frame = group_pairs(parts)
    return {
        name: conform_part(pl.concat(by_frame[name], how="diagonal"), schema)
        if name in by_frame
        else schema.to_frame()
        for name, schema in SCHEMAS.items()
    }


def drop_refused(source: Source, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Refused]]:
    """Leave out the rows that have no value of its type where one matters.

    Args:
        source: The table.
        frame: Its columns; `<column>_refused`, if there is one, marks these rows, by true or 1. In columns
            for drawing alone, what is no number becomes null.

    Returns:
        The other rows, and what was refused.
    """
    refused, schema = [], SCHEMAS[source.table.frame]
    for ours, column in source.table.columns.items():
        is_number = ours in frame.columns and frame[ours].dtype.is_integer() and column.words is None
        if is_number and schema[ours] in (pl.Int32, pl.UInt32):
            values = frame[ours].drop_nulls()
            if count := values.cast(schema[ours], strict=False).null_count():
                refused.append(Refused(f"with too large a number in `{source.columns[ours]}`", count, False))
        flag = f"{ours}_refused"
        if flag not in frame.columns or not (count := int(frame[flag].sum())):
            continue
        is_drawn = ours not in (*TIMES, *REQUIRED.get(source.table.frame, ())) and bool(
            {"details", "cpu"} & {*column.groups} or SHOW_GROUPS & {*source.table.groups}
        )
        kind = "text" if schema[ours] == pl.String else "whole number"
        refused.append(Refused(f"with no {kind} in `{source.columns[ours]}`", count, not is_drawn))
        if not is_drawn:
            frame = frame.filter(pl.col(flag) == 0)
    return frame, refused


def leave_out(path: Path, tally: RowTally, source: Source, refused: Sequence[Refused]) -> None:
    """Count and name the rows of a table that were left out, and values that were."""
    table = source.name if source.table.title else source.table.frame
    for one in refused:
        if one.is_row and table in tally.read:
            tally.read[table] += one.row_count
            tally.leave_out(table, one.reason, one.row_count)
        if one.is_row or not source.table.title:
            rows, ending = format_count(one.row_count, "row"), "left out" if one.is_row else "kept without it"
            warnings.warn(f"`{path}`: {rows} of `{source.name}` {one.reason} {ending}", stacklevel=4)


def shape_rows(source: Source, frame: pl.DataFrame) -> pl.DataFrame:
    """Convert exported rows to the columns of a raw frame: translate enumerations, cast.

    Args:
        source: The table.
        frame: Its columns under the names of the raw frame; of a table of names and values only `rows_named`.
    """
    table, schema = source.table, SCHEMAS[source.table.frame]
    if table.frame == "launcher":
        # those of the allow-list that have valid values
        values = frame["value"].cast(pl.String, strict=False).drop_nulls()
        entries = (entry for value in values for entry in re.split("[;\0]", value))
        found = [match for entry in entries if (match := LAUNCHER_VARIABLE.fullmatch(entry))]
        kept = [(match[1] or match[3], match[2] or match[4]) for match in found]
        return pl.DataFrame(kept, schema=SCHEMAS["launcher"], orient="row")
    if table.rows_named:
        names = pl.Series("name", [table.rows_named[name] for name in frame["name"]], dtype=pl.String)
        frame = pl.DataFrame([names, frame["value"]])
    # column by column: one query of all takes several times as long on the many small tables
    columns = {column.name: column for column in frame.iter_columns()}
    rows = pl.DataFrame(
        [
            _fit(columns[name], table.columns.get(name), dtype)
            for name, dtype in schema.items()
            if name in columns
        ]
    )
    if not table.title:
        return rows
    rows = rows.with_columns(table=pl.lit(source.name), source=pl.lit(table.title))
    return rows.with_columns(pl.col("is_kept").fill_null(value=False)) if "is_kept" in rows.columns else rows


def _is_needed(groups: tuple[Group, ...], need: Set[Group]) -> bool:
    return not groups or not need.isdisjoint(groups)


def _superseded(table: Table, catalog: Catalog) -> set[Group]:
    """Return the groups of a table that have their data in another table of the export."""
    return {group for group, other in table.superseded_by.items() if other in catalog}


def _present_name(table: Table, catalog: Catalog) -> str | None:
    required = {"name", "value"} if table.rows_named else set(table.must_have)
    for name in table.names:
        if name in catalog and required <= set(catalog[name]):
            return name
    return None


def _fit(values: pl.Series, column: Column | None, dtype: pl.DataType) -> pl.Series:
    """Cast a column to its type: wrap unsigned ids, translate enumerations."""
    if column is not None and column.words is not None:
        return _translate(values, column, column.words, dtype)
    if values.dtype == pl.UInt64 and dtype == pl.Int64:
        return values.reinterpret(signed=True)
    if values.dtype == pl.Binary and dtype == pl.String:
        return values.bin.encode("hex")
    if dtype == pl.String:
        text = values.cast(pl.String)
        return text.set(text == "", None)
    # a value out of range (a device of 40 bits) counts as absent
    return values.cast(dtype, strict=False)


def _translate(
    values: pl.Series, column: Column, words: Mapping[int, str | int], dtype: pl.DataType
) -> pl.Series:
    numbers, last = values.cast(pl.Int64, strict=False), max(words)
    by_number = _list_words(tuple(words.items()), dtype)
    index = numbers.set((numbers < 0) | (numbers > last), None)
    translated = by_number[index.cast(pl.UInt32)].alias(values.name)
    if column.words_beyond is None:
        return translated
    first, word = column.words_beyond
    return translated.set(numbers >= first, word)


@cache
def _list_words(words: tuple[tuple[int, str | int], ...], dtype: pl.DataType) -> pl.Series:
    """List the words of the numbers of an enumeration from 0 on; null where it has none."""
    by_number = dict(words)
    return pl.Series([by_number.get(number) for number in range(max(by_number) + 1)], dtype=dtype)


MOST_ROWS = 2**31 - 1
LEAST_ROW_BYTES = 5  # pointer, length, row id, length of the header, one value


def check_row_counts(path: Path, sources: Sequence[Source], counts: Mapping[str, int]) -> None:
    """Check the number of rows of each table before any is read.

    Args:
        path: A SQLite file, or a folder of tables.
        sources: Tables to read.
        counts: Number of rows by table, or the last row id; one that the file has no room for is damaged, and
            no count.

    Raises:
        ReportError: A table has more rows than can be processed.
    """
    room = path.stat().st_size // LEAST_ROW_BYTES if path.is_file() else math.inf
    for source in sources:
        count = counts.get(source.name, 0)
        if MOST_ROWS < count <= room:
            raise ReportError(
                f"`{path}` has {count:,} rows in `{source.name}`; expected at most {MOST_ROWS:,}",
                "record a shorter time, with `nsys profile --delay` and `--duration`",
            )
