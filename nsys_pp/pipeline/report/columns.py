"""Columns of a report's frames as arrays.

A report has a few thousand rows, where a call of polars costs more than the work in it: what follows one row
after the other is therefore done on arrays, and these are the ways there.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import polars as pl

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.int64(-(1 << 62))
"""Stands for null."""
_DEVICE = ["process_key", "device_id"]


def numbers(series: pl.Series) -> Int64s:
    """Return the values of a column of integers, `NEVER` for null."""
    if series.null_count():
        series = series.cast(pl.Int64).fill_null(NEVER)
    return series.to_numpy().astype(np.int64, copy=False)


def as_numbers(name: str, values: Int64s) -> pl.Series:
    """Make a column of values; the opposite of `numbers`."""
    is_null = values == NEVER
    series = pl.Series(name, values)
    return series.set(pl.Series(is_null), None) if is_null.any() else series


def is_among(words: pl.Series, some: Collection[str]) -> Bools:
    """Say of each word of an `Enum` without nulls whether it is one of `some`."""
    every = words.dtype.categories  # type: ignore[attr-defined]
    is_one = np.array([word in some for word in every], dtype=np.bool_)
    found: Bools = is_one[words.to_physical().to_numpy()]
    return found


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Say of each name (`NAME`; null has none) whether `pattern` is found in it; every name is looked at once."""
    found = np.zeros(len(names), dtype=np.bool_)
    if names.null_count():
        found[names.is_not_null().to_numpy()] = is_named(names.drop_nulls(), pattern)
        return found
    if names.is_empty():
        return found
    code = names.to_physical().to_numpy()
    row_of = np.full(int(code.max()) + 1, -1)
    row_of[code] = np.arange(len(code))
    rows = row_of[row_of >= 0]
    is_found = np.zeros(len(row_of), dtype=np.bool_)
    search = re.compile(pattern).search
    is_found[code[rows]] = [search(name) is not None for name in names[rows].to_list()]
    found[:] = is_found[code]
    return found


def places(row: Int64s) -> pl.Series:
    """Make rows to gather: null, which gathers null, where the row is -1."""
    return pl.Series(row).set(pl.Series(row < 0), None)


def find_rows(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each wanted id among ids; -1 where it is not there."""
    order = np.append(np.argsort(ids, kind="stable"), -1)
    at = order[np.searchsorted(ids[order[:-1]], wanted)]
    return np.where(np.append(ids, NEVER)[at] == wanted, at, -1)


def pack(*columns: Int64s) -> Int64s:
    """Make one number of several, equal where all of them are.

    Where the values of a column reach far their ranks are taken: as long as no more than 2**20 are different in
    each of three columns, the number fits.
    """
    packed = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, least = column, int(column.min(initial=0))
        if int(column.max(initial=0)) - least >= 1 << 20:
            values, least = np.unique(column, return_inverse=True)[1], 0
        packed = packed * (int(values.max(initial=0)) - least + 1) + values - least
    return packed


def list_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """List the devices in a frame: process_key, device_id; by both."""
    devices = frame[_DEVICE]
    process, device = (devices[name].to_numpy() for name in _DEVICE)
    if len(frame) and (process == process[0]).all() and (device == device[0]).all():
        return devices.head(1)
    return devices.unique().sort(_DEVICE)


def number_devices(frame: pl.DataFrame, devices: pl.DataFrame) -> Int64s:
    """Find the place of each row's device among `devices` (`list_devices`); -1 where it is not there."""
    process, device = (frame[name].to_numpy() for name in _DEVICE)
    place = np.full(len(frame), -1)
    for at, (one_process, one_device) in enumerate(devices.iter_rows()):
        place[(process == one_process) & (device == one_device)] = at
    return place
