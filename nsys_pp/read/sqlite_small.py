"""Small files that are read without SQLite: sound ones (`sqlite_sound.py`) whose definitions of tables SQLite has parsed before.

Reports of a run have equal definitions, so SQLite parses those of the first. A file that is unusual, damaged or of another
schema is left to SQLite.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from nsys_pp.arrays.byte_rows import BYTES, INTEGER, NULL, REAL, TEXT
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.raw import Group
from nsys_pp.read.last_file import Stamp, find_last_file
from nsys_pp.read.plan import shape_rows
from nsys_pp.read.sqlite_pages import Bytes, Pages, UnusualPageError
from nsys_pp.read.sqlite_plain import Layout, plan_columns
from nsys_pp.read.sqlite_records import StoredRows, Wanted, decode_values
from nsys_pp.read.sqlite_schema import Schema
from nsys_pp.read.sqlite_sound import (
    Rows,
    check_pages,
    check_values,
    find_rows,
    join_payload,
    load_file,
    read_last_ids,
    walk_trees,
)
from nsys_pp.read.table import Source

MOST_BYTES = 4_000_000
"""Size of a small file: SQLite checks it as a whole."""
_MOST_SCHEMAS, _MOST_ENTRIES = 64, 1_024  # that are kept
_ODD_WORDS = (b"strict", b"collate")  # of definitions, with rules of their own for values
_CATALOG_WIDTH = 5  # type, name, table, root page, definition
_TEXTS = (0, 1, 2, 4)
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by storage class
_ANY = NULL | INTEGER | REAL | BYTES | TEXT

Definitions = tuple[tuple[bytes, bytes, bytes], ...]
"""Name, name of the table, and definition of each table, as they are stored."""


class ParsedSchema(Struct, frozen=True):
    """Definitions of tables that SQLite has parsed; shared by reports, and never changed."""

    schema: Schema
    layouts: Mapping[
        str, Layout
    ]  # of the report that was read first: only its root pages are of no use for others
    names: tuple[str, ...]  # of the tables, as they are stored
    allowed: tuple[npt.NDArray[np.uint8], ...]  # kinds of values of each column, of each table
    plans: dict[frozenset[Group], list[tuple[Source, list[Wanted] | None]]] = field(default_factory=dict)

    def plan(self, need: frozenset[Group]) -> list[tuple[Source, list[Wanted] | None]]:
        """List the tables that fill raw frames, each with its columns to decode; None where SQLite must convert its values."""
        if need not in self.plans:
            self.plans[need] = [
                (source, None if source.table.any_of else plan_columns(source, self.layouts[source.name]))
                for source in self.schema.plan(need)
            ]
        return self.plans[need]


class SmallFile(Struct, frozen=True):
    """A small file in memory, with the definitions of its tables."""

    pages: Pages
    buffer: Bytes
    definitions: Definitions
    roots: Int64s
    catalog_pages: Int64s


class SoundFile(Struct, frozen=True):
    """File with intact pages and rows."""

    parsed: ParsedSchema
    core: Core
    buffer: Bytes
    rows: Rows

    def count_rows(self) -> dict[str, int]:
        """Count the rows of each table."""
        bounds = self.rows.bounds
        return {name: bounds[at + 1] - bounds[at] for at, name in enumerate(self.parsed.names)}

    def find_last_rows(self) -> dict[str, int]:
        """Find the last row id of each table; 0 for an empty one."""
        bounds, row_ids = self.rows.bounds, self.rows.row_ids
        return {
            name: int(row_ids[bounds[at + 1] - 1]) if bounds[at + 1] > bounds[at] else 0
            for at, name in enumerate(self.parsed.names)
        }

    def decode(self, source: Source, wanted: list[Wanted]) -> pl.DataFrame | None:
        """Decode a table; None if SQLite must convert its values."""
        table = self.parsed.names.index(source.name)
        of_table = slice(self.rows.bounds[table], self.rows.bounds[table + 1])
        rows, width = self.rows, len(self.parsed.allowed[table])
        of_file = (rows.row_ids, rows.headers, rows.lengths, rows.codes, rows.sizes, rows.local)
        columns = [column[of_table] for column in of_file]
        if source.table.rows_named and len(columns[0]):  # other values may be secrets: they are not decoded
            names = [want for want in wanted if want.name == "name"]
            found = decode_values(self.core, StoredRows(self.buffer, *columns), width, names)
            if found is None:
                return None
            kept = np.flatnonzero([name in source.table.rows_named for name in found[0].to_list()])
            columns = [column[kept] for column in columns]
        if not len(columns[0]):
            return pl.DataFrame()
        values = decode_values(self.core, StoredRows(self.buffer, *columns), width, wanted)
        if values is None:
            return None
        # absent columns become null at once
        kept_values = [column for column in values if column.null_count() < len(column)]
        is_complete = bool(source.table.title or source.table.rows_named) or not kept_values
        texts = [want.name for want in wanted if want.is_text]
        return shape_rows(source, build_frame(values if is_complete else kept_values), texts=texts)


class _KeptSmall(Struct):
    """The file that was read last, and its form after all checks; None until it is checked, and if it is not sound."""

    path: Path
    stamp: Stamp
    small: SmallFile | None  # None: not of the plain form
    sound: SoundFile | None = None


_known: dict[Definitions, ParsedSchema] = {}


def open_small(path: Path, stamp: Stamp) -> SmallFile | None:
    """Read a small file, and the definitions of its tables; None if it is not of the plain form.

    Args:
        path: The file.
        stamp: Changes with each write.

    Raises:
        OSError: It cannot be opened.
    """
    last = find_last_file()
    if last is None:
        return _open_small(path)
    kept = last.find(path, stamp)
    if not isinstance(kept, _KeptSmall):
        kept = last.kept = _KeptSmall(path, stamp, _open_small(path))
    return kept.small


def _open_small(path: Path) -> SmallFile | None:
    if load_core() is None:
        return None
    try:
        pages, buffer = load_file(path, MOST_BYTES)
        trees = walk_trees(pages, buffer, np.array([1]))
        rows = find_rows(pages, buffer, trees, 1)
        entries = [_read_entry(join_payload(pages, buffer, rows, row)) for row in range(rows.bounds[1])]
    except UnusualPageError:
        return None
    if not entries:
        return None
    overflow = [page for of_row in rows.overflow for page in of_row]
    definitions = tuple((name, table, sql) for name, table, sql, _ in entries)
    roots = np.array([root for *_, root in entries])
    return SmallFile(pages, buffer, definitions, roots, np.append(trees.visited, overflow).astype(np.int64))


def check_small(file: SmallFile) -> SoundFile | None:
    """Check all of a file; None if it is not sound, or its tables are not known."""
    last = find_last_file()
    kept = None if last is None else last.kept
    if not isinstance(kept, _KeptSmall) or kept.small is not file:
        return _check_small(file)
    if kept.sound is None:
        kept.sound = _check_small(file)
    return kept.sound


def _check_small(file: SmallFile) -> SoundFile | None:
    parsed, core = _known.get(file.definitions), load_core()
    if parsed is None or core is None:
        return None
    try:
        trees = walk_trees(file.pages, file.buffer, file.roots)
        rows = find_rows(file.pages, file.buffer, trees, len(file.roots))
        overflow = np.array([page for of_row in rows.overflow for page in of_row], dtype=np.int64)
        check_pages(file.pages, file.catalog_pages, trees.visited, overflow)
        for table, allowed in enumerate(parsed.allowed):
            check_values(core, file.buffer, rows, table, allowed)
    except UnusualPageError:
        return None
    return SoundFile(parsed, core, file.buffer, rows)


def find_last_rows(file: SmallFile, names: Collection[str]) -> dict[str, int] | None:
    """Find the last row id of tables, from the last pages of each; None if one is not of the plain form."""
    known = _known.get(file.definitions)
    if known is None:
        return None
    chosen = [at for at, name in enumerate(known.names) if name in names]
    try:
        last = read_last_ids(file.pages, file.buffer, file.roots[chosen]) if chosen else []
    except UnusualPageError:
        return None
    return dict(zip((known.names[at] for at in chosen), last, strict=True))


def find_schema(file: SmallFile) -> Schema | None:
    """Find the kept schema of a file."""
    known = _known.get(file.definitions)
    return None if known is None else known.schema


def keep_schema(file: SmallFile, schema: Schema, layouts: Mapping[str, Layout]) -> None:
    """Keep the definitions of a file as SQLite has parsed them."""
    if any(word in sql.lower() for *_, sql in file.definitions for word in _ODD_WORDS):
        return
    by_raw_name = {stored.raw_name: name for name, stored in schema.stored.items()}
    raw_names = [name for name, *_ in file.definitions]
    if len(by_raw_name) != len(raw_names) or by_raw_name.keys() != {*raw_names}:
        return
    if not all(layout.is_plain for layout in layouts.values()):
        return
    names = tuple(by_raw_name[name] for name in raw_names)
    if len(_known) >= _MOST_SCHEMAS:
        _known.clear()
    allowed = tuple(_list_allowed(schema, name, layouts[name].row_id) for name in names)
    _known[file.definitions] = ParsedSchema(schema, dict(layouts), names, allowed)


def _list_allowed(schema: Schema, name: str, row_id: str | None) -> npt.NDArray[np.uint8]:
    """List the kinds of values that a check by SQLite accepts in each column of a table; rarer ones are left out."""
    stored = schema.stored[name]
    kinds = []
    for (column, declared, _, _), is_required in zip(stored.columns, stored.required, strict=True):
        if column == row_id:
            kinds.append(NULL)  # the row id stands for it
        else:
            kinds.append(_find_kinds(declared.upper()) & ~(NULL if is_required else 0))
    return np.array(kinds, dtype=np.uint8)


def _find_kinds(declared: str) -> int:
    """Find the kinds of values of a declared type: https://sqlite.org/datatype3.html, section 3.1."""
    if "INT" in declared:
        return NULL | INTEGER | REAL
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return NULL | TEXT
    return _ANY if "BLOB" in declared or not declared else NULL | INTEGER | REAL


@lru_cache(_MOST_ENTRIES)  # reports of a run have equal definitions, and many tables at equal pages
def _read_entry(payload: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Read a row of the catalog: name, name of the table, definition, root page.

    Raises:
        UnusualPageError: It is not that of a table.
    """
    end, at = _read_varint(payload, 0)
    serials = []
    while at < end:
        serial, at = _read_varint(payload, at)
        serials.append(serial)
    is_text = all(serials[column] >= 13 and serials[column] % 2 for column in _TEXTS if column < len(serials))
    if at != end or len(serials) != _CATALOG_WIDTH or not is_text or serials[3] not in _INTEGERS:
        raise UnusualPageError
    values = []
    for serial in serials:
        size = _INTEGERS.get(serial, (serial - 13) >> 1)
        values.append(payload[at : at + size])
        at += size
    kind, name, table, root, sql = values
    if at != len(payload) or kind != b"table" or name != table:
        raise UnusualPageError
    return name, table, sql, int.from_bytes(root, "big", signed=True)


def _read_varint(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for stop in range(at, min(at + 8, len(payload))):
        value = value << 7 | payload[stop] & 0x7F
        if payload[stop] < 0x80:
            return value, stop + 1
    raise UnusualPageError
