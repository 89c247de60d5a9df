"""Texts that are slices of bytes in UTF-8."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.byte_rows import Bytes, join_slices
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Int64s

_FEWEST_TEXTS, _FEW_TEXTS = 200, 2_000  # where a loop is faster than arrays, and than a query


def cut_texts(name: str, buffer: Bytes, starts: Int64s, lengths: Int64s) -> pl.Series:
    """Cut texts out of the buffer; those without a byte are null."""
    if lengths.size <= _FEWEST_TEXTS:
        view, slices = memoryview(buffer.data), zip(starts.tolist(), lengths.tolist(), strict=True)
        few = [
            str(view[start : start + length], "utf-8", "replace") if length else None
            for start, length in slices
        ]
        return pl.Series(name, few, dtype=pl.String)
    present = np.flatnonzero(lengths)
    if present.size == 0:
        return pl.Series(name, [None], dtype=pl.String).new_from_index(0, lengths.size)
    first, size = starts[present], lengths[present]
    total = int(size.sum())
    if 2 * total < buffer.size:  # a text holds all bytes that it was cut from
        core = load_core()
        if core is None:
            buffer = buffer[expand_windows(first, first + size)]
        else:
            buffer = join_slices(core, buffer, first, size)
        first = np.cumsum(size) - size
    raw = buffer.tobytes()
    if present.size <= _FEW_TEXTS:  # a query takes longer
        slices = zip(first.tolist(), (first + size).tolist(), strict=True)
        cut = pl.Series(name, [raw[start:stop] for start, stop in slices], dtype=pl.Binary)
    else:
        cut = pl.select(
            pl.lit(raw, dtype=pl.Binary)
            .bin.slice(pl.lit(pl.Series(first)), pl.lit(pl.Series(size)))
            .alias(name)
        ).to_series()
    text = decode_text(cut)
    if present.size == lengths.size:
        return text
    places = np.zeros(lengths.size, np.uint32)
    places[present] = np.arange(present.size)
    return text[build_column("", places)].set(build_column("", lengths == 0), None)


def decode_text(values: pl.Series) -> pl.Series:
    """Decode bytes as text; bytes that are not UTF-8 become the replacement character."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.PolarsError:
        repaired = [None if value is None else value.decode("utf-8", "replace") for value in values]
        return pl.Series(values.name, repaired, dtype=pl.String)
