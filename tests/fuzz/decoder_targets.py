"""Targets whose inputs are the bytes that one decoder reads: pages of a table, frames and blocks of a part, whole parts.

Each takes under a millisecond, so that a million inputs of them take minutes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from contextlib import closing, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import polars as pl

from nsys_pp.arrays.packed_frames import unpack_frame
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.part import BLOCKS_MEMBER, FACTS_MEMBER, FRAMES_MEMBER, PART_FRAMES
from nsys_pp.read import check_part_blocks, read_part
from nsys_pp.read.sqlite_pages import UnusualPageError, find_leaves, open_pages
from nsys_pp.read.sqlite_records import Wanted, decode_rows
from nsys_pp.write.perfetto.packed_blocks import HEAD_BYTES, check_block, read_head, unpack_block
from tests.fuzz import seeds
from tests.fuzz.choices import Choices
from tests.fuzz.values import change_bytes

_PAGE_BYTES = 512
_HEADER_BYTES = 100
_COLUMNS = ("a", "b", "c", "d")
_WANTED = [
    Wanted("id", None, is_row_id=False, is_text=False),
    Wanted("a", 0, is_row_id=False, is_text=False),
    Wanted("b", 1, is_row_id=False, is_text=True),
    Wanted("c", 2, is_row_id=False, is_text=False, bits=32),
]
_ROOT = 2  # page of the only table
_TABLE_SEEDS = 4


@cache
def _read_table_seed(number: int) -> bytes:
    """Return a database with one table: short rows, rows of all widths, rows with long texts, or wide row ids."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("CREATE TABLE T (a INTEGER, b TEXT, c INTEGER, d TEXT)")
            for row in range((12, 60, 30, 40)[number]):
                text = None if row % 5 == 0 else "é" * (row % 60 if number == 2 else row % 7)
                values = (1 << row % 63, text, row % 3 or None, "x" * (row % 4))
                row_id = row + 1 if number < 3 else 10**9 * (row - 5)
                connection.execute(
                    "INSERT INTO T (rowid, a, b, c, d) VALUES (?, ?, ?, ?, ?)", (row_id, *values)
                )
        return path.read_bytes()


def write_changed_table(choices: Choices, folder: Path) -> None:
    """Write a database of one table with changed pages; what names the table and its columns stays."""
    data = _read_table_seed(choices.below(_TABLE_SEEDS))
    head, schema, pages = data[:_HEADER_BYTES], data[_HEADER_BYTES:_PAGE_BYTES], data[_PAGE_BYTES:]
    if choices.below(8) == 0:
        head = change_bytes(head, choices, most=3)[:_HEADER_BYTES].ljust(_HEADER_BYTES, b"\0")
    pages = change_bytes(pages, choices, block=choices.pick([16, 64, _PAGE_BYTES]), most=8)
    (folder / "t.sqlite").write_bytes(head + schema + pages)


def decode_table(source: Path, output: Path) -> None:
    """Decode a table from its pages: rows as SQLite reads them, or left to SQLite."""
    path = source / "t.sqlite"
    file = os.open(path, os.O_RDONLY)
    try:
        pages = open_pages(file)
        rows = decode_rows(pages, find_leaves(pages, _ROOT), len(_COLUMNS), _WANTED)
    except UnusualPageError:
        raise NsysPPError("left to SQLite") from None
    finally:
        os.close(file)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        try:
            queried = connection.execute("SELECT rowid, a, b, c FROM T").fetchall()
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                if connection.execute("PRAGMA quick_check(1)").fetchall() == [(b"ok",)]:
                    raise AssertionError("SQLite refuses sound pages") from None
            return  # damage that a check of the file reports
    if len(queried) != len(rows):
        raise AssertionError(f"{len(rows)} rows, and {len(queried)} by SQLite")
    for position, name in enumerate(rows.columns):
        ours = rows[name].to_list()
        theirs = [row[position] for row in queried]
        if rows[name].dtype == pl.String:
            theirs = [text.decode("utf-8", "replace") if text else None for text in theirs]
            ours = [None if text is None else text.encode().decode("utf-8", "replace") for text in ours]
        if ours != theirs:
            raise AssertionError(f"`{name}` differs from SQLite's: {ours} {theirs}")


@cache
def _read_frame_seeds(number: int) -> tuple[tuple[str, bytes], ...]:
    """Return the frames of a part with rows, unpacked, by name."""
    with ZipFile(BytesIO(seeds.read_part(number))) as archive:
        sizes = json.loads(archive.read(FACTS_MEMBER))["frame_bytes"]
        data, at, frames = archive.read(FRAMES_MEMBER), 0, []
    for name, size in sizes.items():
        frames.append((name, zlib.decompress(data[at : at + size])))
        at += size
    return tuple(frames)


def write_changed_frame(choices: Choices, folder: Path) -> None:
    """Write a frame of a part with changed bytes."""
    name, data = choices.pick(_read_frame_seeds(choices.below(seeds.COUNT)))
    (folder / name).write_bytes(change_bytes(data, choices, block=16, most=6))


def unpack_frames(source: Path, output: Path) -> None:
    """Unpack a frame: it has its schema, or is refused."""
    (path,) = source.iterdir()
    try:
        frame = unpack_frame(path.read_bytes(), PART_FRAMES[path.name])
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, pl.exceptions.PolarsError):
        raise NsysPPError("refused") from None  # as `nsys_pp.read.parts` does
    if frame.schema != PART_FRAMES[path.name]:
        raise AssertionError(f"{frame.schema}")


@cache
def _read_block_seeds(number: int) -> tuple[bytes, ...]:
    """Return packed blocks, without their heads."""
    with ZipFile(BytesIO(seeds.read_part(number))) as archive:
        data = archive.read(BLOCKS_MEMBER)
    blocks, at = [], 0
    while at < len(data):
        length, _ = read_head(data[at : at + HEAD_BYTES])
        blocks.append(data[at + HEAD_BYTES : at + HEAD_BYTES + length])
        at += HEAD_BYTES + length
    return tuple(blocks)


def write_changed_block(choices: Choices, folder: Path) -> None:
    """Write a packed block with changed contents, packed again in half of the cases."""
    data = choices.pick(_read_block_seeds(choices.below(seeds.COUNT)))
    if data[0] == 1 and choices.below(4):
        inner = zlib.decompress(data[1:]) if data[1] == 0x78 else zlib.decompress(data[1:], -15)
        data = b"\1" + zlib.compress(change_bytes(inner, choices, block=16, most=4), 1)
    else:
        data = change_bytes(data, choices, block=16, most=4)
    (folder / "block").write_bytes(data)


def unpack_blocks(source: Path, output: Path) -> None:
    """Unpack a block as a merge does."""
    data = (source / "block").read_bytes()
    try:
        unpack_block(check_block(data, zlib.crc32(data)))
    except ValueError:
        raise NsysPPError("refused") from None


def read_whole_part(source: Path, output: Path) -> None:
    """Read a part: its facts, each of its frames, and its blocks by their checksum."""
    path = source / "rank0.nspart"
    part = read_part(path, version="0")
    for name in part.frames:
        if part.frames[name].schema != PART_FRAMES[name]:
            raise AssertionError(name)
    check_part_blocks(path)
