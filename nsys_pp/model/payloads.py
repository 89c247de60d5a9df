"""What NVTX events carry -> text: numbers in decimal, JSON as it was, simple structures as JSON."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.model.names import resolve
from nsys_pp.raw import RawReport

_HEADER_BYTES = 32  # domain, 0, schema, 0 in 32 bits each; size, size with header in 64 bits each
_NUMPY_KINDS = {"int": "i", "uint": "u", "float": "f", "char": "u", "address": "u"}
_UINT32 = 0xFFFF_FFFF


def write_payloads(raw: RawReport) -> pl.DataFrame:
    """Write every payload as text.

    Returns:
        Columns `row` and `payload`, one row per event that has one.
    """
    payloads = raw["payloads"]
    json = pl.lit(resolve(payloads["json_id"], raw["strings"], dtype=pl.String()))
    binary = pl.lit(decode_structures(payloads["binary"], raw["payload_fields"]))
    return payloads.select(
        "row",
        payload=pl.coalesce(
            pl.col("uint64").reinterpret(signed=False).cast(pl.String),
            pl.col("int64").cast(pl.String),
            pl.col("double").cast(pl.String),
            (pl.col("uint32") & _UINT32).cast(pl.String),
            pl.col("int32").cast(pl.String),
            pl.col("float").cast(pl.String),
            json,
            pl.col("json"),
            binary,
            pl.col("binary"),
        ),
    )


def decode_structures(hexadecimal: pl.Series, fields: pl.DataFrame) -> pl.Series:
    """Read structures by the layout that the program gave with them.

    Args:
        hexadecimal: Structures with their header, as text.
        fields: The raw frame of payload fields.

    Returns:
        JSON objects; null where the layout is unknown or not a plain row of numbers.
    """
    decoded = pl.Series(hexadecimal.name, [None], dtype=pl.String).new_from_index(0, len(hexadecimal))
    text = pl.col("text")
    rows = (
        hexadecimal.alias("text")
        .to_frame()
        .with_row_index("at")
        .filter(text.str.len_bytes() >= 2 * _HEADER_BYTES)
        .with_columns(
            data=text.str.decode("hex", strict=False),
            domain=text.str.slice(0, 8).str.decode("hex", strict=False).bin.reinterpret(dtype=pl.UInt32),
            schema=text.str.slice(16, 8).str.decode("hex", strict=False).bin.reinterpret(dtype=pl.UInt32),
        )
        .drop_nulls()
        .with_columns(size=pl.col("data").bin.size())
    )
    layouts = fields.unique(["domain", "schema", "index"], keep="first", maintain_order=True)
    for (domain, schema, size), same in rows.group_by("domain", "schema", "size"):
        layout = layouts.filter(pl.col("domain") == domain, pl.col("schema") == schema).sort("index")
        objects = _decode_alike(same["data"], layout, int(size) - _HEADER_BYTES)
        if objects is not None:
            decoded = decoded.scatter(same["at"], objects)
    return decoded


def _decode_alike(data: pl.Series, layout: pl.DataFrame, size: int) -> pl.Series | None:
    """Read structures of one layout and one length, a field at a time."""
    fields = layout.with_columns(pl.col("offset").fill_null(0))
    ends = (fields["offset"] + fields["bytes"]).max()
    is_simple = (fields["count"].fill_null(0) <= 1).all() and not fields["type"].has_nulls()
    if fields.is_empty() or not is_simple or not isinstance(ends, int) or ends > size:
        return None
    table = np.frombuffer(b"".join(data), dtype=np.uint8).reshape(len(data), _HEADER_BYTES + size)
    columns = []
    for kind, width, offset, name in fields.select("type", "bytes", "offset", "name").rows():
        first = _HEADER_BYTES + offset
        cells = np.ascontiguousarray(table[:, first : first + width])
        columns.append(pl.Series(name, cells.view(f"<{_NUMPY_KINDS[kind]}{width}").ravel()))
    return pl.DataFrame(columns).select(pl.struct(pl.all()).struct.json_encode()).to_series()
