"""Array queries of report columns: devices, rows and names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, find_distinct, numbers
from nsys_pp.arrays.types import Bools, Int64s

_DEVICE = ["process_key", "device_id"]


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Return the mask of names (`NAME`) that contain a pattern; each distinct name is searched once."""
    search = re.compile(pattern).search
    first, inverse = find_distinct(numbers(names, null=-1))
    is_found = [name is not None and search(name) is not None for name in names[first].to_list()]
    mask: Bools = np.array(is_found, dtype=np.bool_)[inverse]
    return mask


def gather_indices(row: Int64s) -> pl.Series:
    """Build the indices to gather rows: null where the row is -1, to gather null."""
    return pl.Series(row).set(pl.Series(row < 0), None)


def gather_rows(frame: pl.DataFrame, columns: Sequence[str], row: Int64s) -> pl.DataFrame:
    """Gather rows of some columns; all null where the row is -1."""
    selected = frame[list(columns)]
    return pl.concat([selected, selected.clear(1)])[row]


def find_rows(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each wanted id among ids; -1 without one."""
    order = np.append(np.argsort(ids, kind="stable"), -1)
    at = order[np.searchsorted(ids[order[:-1]], wanted)]
    return np.where(np.append(ids, NEVER)[at] == wanted, at, -1)


def list_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """List the devices in a frame: process_key, device_id; by both."""
    devices = frame[_DEVICE]
    process, device = (devices[name].to_numpy() for name in _DEVICE)
    if len(frame) and (process == process[0]).all() and (device == device[0]).all():
        return devices.head(1)
    return devices.unique().sort(_DEVICE)


def number_devices(frame: pl.DataFrame, devices: pl.DataFrame) -> Int64s:
    """Find the index of each row's device in `devices` (`list_devices`); -1 without one."""
    process, device = (frame[name].to_numpy() for name in _DEVICE)
    index = np.full(len(frame), -1)
    for number, (process_key, device_id) in enumerate(devices.iter_rows()):
        index[(process == process_key) & (device == device_id)] = number
    return index
