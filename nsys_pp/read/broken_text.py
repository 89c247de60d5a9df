"""Exported tables with text that is not UTF-8, which nsys copies unchanged.

A single environment variable that is not UTF-8 makes polars reject the whole table. The column type that the
file declares is therefore changed from text to bytes, in a copy in memory, and the bytes are decoded here.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import polars as pl

from nsys_pp.arrays.text_slices import decode_text

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
        data, names = _declare_bytes_in_parquet(data)
        frame = pl.read_parquet(io.BytesIO(data))
    else:
        data, names = _declare_bytes_in_stream(data)
        frame = pl.read_ipc_stream(io.BytesIO(data))
    return frame.with_columns(decode_text(frame[name]) for name in names)


def _declare_bytes_in_parquet(data: bytes) -> tuple[bytes, list[str]]:
    """Change text columns to bytes in the footer, which is followed by its length and the magic number."""
    end = len(data) - 8
    start = end - int.from_bytes(data[end : end + 4], "little")
    footer = data[start:end]
    names = [match.group(2).decode() for match in _PARQUET_TEXT.finditer(footer)]
    return data[:start] + _PARQUET_TEXT.sub(_PARQUET_BYTES, footer) + data[end:], names


def _declare_bytes_in_stream(data: bytes) -> tuple[bytes, list[str]]:
    """Change text columns to bytes in the schema, the first message of a stream, which is a FlatBuffer.

    A table of the FlatBuffer refers to its vtable, which has the offsets of its fields; all offsets are relative.
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
