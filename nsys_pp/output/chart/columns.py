"""Columns of the page, as typed arrays in base64: each in the smallest type that holds its values exactly."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import polars as pl

_TYPES = {
    name: np.dtype(code).newbyteorder("<")
    for name, code in [("u8", "u1"), ("i8", "i1"), ("u16", "u2"), ("i16", "i2"), ("u32", "u4"), ("i32", "i4")]
}
_EXACT = 2**53
"""Doubles hold all integers up to this value exactly."""


def pack_table(columns: dict[str, pl.Series]) -> dict[str, Any]:
    """Pack columns of equal length for `readTable` of `columns.js`."""
    length = next(iter(columns.values())).len()
    return {"length": length, "columns": {name: pack_column(values) for name, values in columns.items()}}


def pack_column(values: pl.Series) -> dict[str, Any]:
    """Pack one column of numbers, booleans or codes.

    Returns:
        `type` and `data`; for a column with nulls also `missing`, the number that stands for null.

    Raises:
        ValueError: An integer is too large for a double.
    """
    missing: dict[str, Any] = {}
    if values.dtype.is_float():
        if values.null_count():
            missing = {"missing": -1}
        array = values.fill_null(-1).to_numpy().astype("<f8")
        return {"type": "f64", "data": _encode(array), **missing}
    whole = values.cast(pl.Int64)
    present = whole.drop_nulls().to_numpy()
    low, high = int(present.min(initial=0)), int(present.max(initial=0))
    if whole.null_count():
        low -= 1
        missing = {"missing": low}
        whole = whole.fill_null(low)
    if max(-low, high) > _EXACT:
        raise ValueError(f"{max(-low, high)} is too large to be exact in a page")
    for name, dtype in _TYPES.items():
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return {"type": name, "data": _encode(whole.to_numpy().astype(dtype)), **missing}
    return {"type": "f64", "data": _encode(whole.to_numpy().astype("<f8")), **missing}


def round_exact(values: pl.Series) -> pl.Series:
    """Round numbers to integers, which take less space in a page; numbers beyond the exact ones remain, as 104 days in nanoseconds."""
    rounded = values.round()
    largest = rounded.abs().max()
    return rounded if isinstance(largest, float) and largest > _EXACT else rounded.cast(pl.Int64)


def pack_strings(values: pl.Series) -> tuple[list[str], pl.Series]:
    """Return the distinct strings and the index of each row's string; null is ""."""
    filled = values.cast(pl.String).fill_null("")
    strings = filled.unique(maintain_order=True)
    codes = filled.replace_strict(strings, pl.int_range(strings.len(), eager=True), return_dtype=pl.UInt32)
    return strings.to_list(), codes


def _encode(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
