"""Finds words in files whatever they are packed in, without knowing their formats."""

from __future__ import annotations

import io
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

_GZIP = re.compile(rb"\x1f\x8b\x08")
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_GZIP_BITS, _ZLIB_BITS = 31, 15
_DEEPEST = 3


def find_words(data: bytes, words: Iterable[str]) -> set[str]:
    """List the words that are anywhere in `data`, whatever their case.

    Looked through are the bytes themselves (UTF-8 and both kinds of UTF-16), whatever gzip or
    zlib stream begins anywhere in them, and so on inside those; and tables in Parquet or SQLite,
    read back.
    """
    searched = [layer.lower() for layer in unpack(data)]
    return {
        word
        for word in words
        if any(spelled in layer for spelled in _spellings(word.lower()) for layer in searched)
    }


def unpack(data: bytes, depth: int = 0) -> Iterator[bytes]:
    """Give `data` and all that is packed in it."""
    yield data
    if data.startswith(b"PAR1"):
        yield _read_parquet(data)
    if data.startswith(b"SQLite format 3\0"):
        yield _read_sqlite(data)
    if depth < _DEEPEST:
        for magic, bits in ((_GZIP, _GZIP_BITS), (_ZLIB, _ZLIB_BITS)):
            for match in magic.finditer(data):
                inner = _inflate(data[match.start() :], bits)
                if inner:
                    yield from unpack(inner, depth + 1)


def _spellings(word: str) -> list[bytes]:
    return [word.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be")]


def _inflate(data: bytes, bits: int) -> bytes:
    """Unpack one stream; what its beginning only looks like gives little or nothing."""
    stream = zlib.decompressobj(bits)
    unpacked = []
    try:
        for start in range(0, len(data), 1 << 14):
            unpacked.append(stream.decompress(data[start : start + (1 << 14)]))
            if stream.eof:
                break
    except zlib.error:
        pass
    return b"".join(unpacked)


def _read_parquet(data: bytes) -> bytes:
    metadata = pl.read_parquet_metadata(io.BytesIO(data))
    return str(metadata).encode() + pl.read_parquet(io.BytesIO(data)).write_csv().encode()


def _read_sqlite(data: bytes) -> bytes:
    """Read all tables: long text is cut into pages in the file itself."""
    connection = sqlite3.connect(":memory:")
    connection.text_factory = bytes
    if hasattr(connection, "deserialize"):
        connection.deserialize(data)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    cells = [
        cell if isinstance(cell, bytes) else repr(cell).encode()
        for table in tables
        for row in connection.execute(f'SELECT * FROM "{table.decode()}"')
        for cell in row
    ]
    connection.close()
    return b"\0".join(cells)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Give every file below a folder, and no other: what was left behind is an output as well."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
