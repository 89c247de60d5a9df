"""Names of events: string ids are resolved once, and only ids that events refer to.

The table of strings also contains the environment of the profiled program, with secrets; strings that no
event refers to are dropped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.frames.conform import NAME, build_nulls
from nsys_pp.frames.raw import RawReport


def resolve(
    ids: pl.Series, strings: pl.DataFrame, *, strip: str | None = None, dtype: pl.DataType = NAME
) -> pl.Series:
    """Return the name of every id; null for null and unknown ids.

    Args:
        ids: Ids into `strings`.
        strings: The raw frame of strings.
        strip: Regular expression of text to remove from names.
        dtype: `NAME`, or String for names that need no category.

    Returns:
        A column of the length of `ids`.
    """
    if ids.null_count() == len(ids) or strings.is_empty():
        return build_nulls(ids.name, dtype, len(ids))
    # names become categories in a small table: no work on strings per row
    text = pl.col("text") if strip is None else pl.col("text").str.replace(strip, "")
    used = (
        strings.filter(pl.col("id").is_in(ids.unique().implode()))
        .unique("id", keep="first", maintain_order=True)
        .select("id", text.cast(dtype))
        .sort("id")
    )
    return (
        ids.cast(used.schema["id"])
        .alias("id")
        .to_frame()
        .join(used, on="id", how="left", maintain_order="left")["text"]
        .alias(ids.name)
    )


_HEADER_BYTES = 32  # domain, 0, schema, 0 in 32 bits each; size, size with header in 64 bits each
_NUMPY_KINDS = {"int": "i", "uint": "u", "float": "f", "char": "u", "address": "u"}
_UINT32 = 0xFFFF_FFFF


class Structures(Struct, frozen=True, kw_only=True):
    """Structures of one layout."""

    at: pl.Series  # rows of the raw frame of payloads
    fields: pl.DataFrame  # a column per field, with its name in the program; row i belongs to at[i]


def format_payloads(raw: RawReport, structures: Sequence[Structures]) -> pl.DataFrame:
    """Format every payload: numbers in decimal, JSON unchanged, simple structures as JSON.

    Args:
        raw: The report.
        structures: From `read_structures`.

    Returns:
        Columns `row` and `payload`, one row per event with a payload; no rows unless group
        "cpu" was read.
    """
    payloads = raw["payloads"]
    if "cpu" not in raw.groups or payloads.is_empty():
        return pl.DataFrame(schema={"row": pl.Int64, "payload": pl.String})
    # structures as JSON objects, at their rows; null elsewhere
    text = pl.Series("binary", [None], dtype=pl.String).new_from_index(0, len(payloads))
    for structure in structures:
        objects = structure.fields.select(pl.struct(pl.all()).struct.json_encode()).to_series()
        text = text.scatter(structure.at, objects)
    return payloads.select(
        "row",
        payload=pl.coalesce(
            pl.col("uint64").reinterpret(signed=False).cast(pl.String),
            pl.col("int64").cast(pl.String),
            pl.col("double").cast(pl.String),
            (pl.col("uint32") & _UINT32).cast(pl.String),
            pl.col("int32").cast(pl.String),
            pl.col("float").cast(pl.String),
            pl.lit(resolve(payloads["json_id"], raw["strings"], dtype=pl.String())),
            pl.col("json"),
            pl.lit(text),
            pl.col("binary"),
        ),
    )


def read_structures(raw: RawReport) -> Iterator[Structures]:
    """Read binary payloads by their recorded layouts.

    Yields:
        Structures with a known layout of plain numbers, by layout; each payload at most once.
    """
    if raw["payloads"]["binary"].null_count() == raw["payloads"].height:
        return
    text = pl.col("text")
    rows = (
        raw["payloads"]
        .select(text="binary")
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
    layouts = raw["payload_fields"].unique(["domain", "schema", "index"], keep="first", maintain_order=True)
    for (domain, schema, size), same in rows.group_by("domain", "schema", "size", maintain_order=True):
        layout = layouts.filter(pl.col("domain") == domain, pl.col("schema") == schema).sort("index")
        fields = _read_fields(same["data"], layout, int(size) - _HEADER_BYTES)
        if fields is not None:
            yield Structures(at=same["at"], fields=fields)


def _read_fields(data: pl.Series, layout: pl.DataFrame, size: int) -> pl.DataFrame | None:
    """Read structures of one layout and one length, field by field.

    None unless all fields are plain numbers.
    """
    fields = layout.with_columns(pl.col("offset").fill_null(0), pl.col("name").fill_null("")).unique(
        "name", keep="first", maintain_order=True
    )
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
    return pl.DataFrame(columns)
