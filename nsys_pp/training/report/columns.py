"""What is asked of a report's columns, on arrays: which device, which row, whether a name fits."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, find_distinct, numbers
from nsys_pp.arrays.types import Bools, Int64s

_DEVICE = ["process_key", "device_id"]


def is_named(names: pl.Series, pattern: str) -> Bools:
    """Say of each name (`NAME`; null has none) whether `pattern` is found in it; every name is looked at once."""
    search = re.compile(pattern).search
    first, which = find_distinct(numbers(names, null=-1))
    is_found = [name is not None and search(name) is not None for name in names[first].to_list()]
    found: Bools = np.array(is_found, dtype=np.bool_)[which]
    return found


def places(row: Int64s) -> pl.Series:
    """Make rows to gather: null, which gathers null, where the row is -1."""
    return pl.Series(row).set(pl.Series(row < 0), None)


def take(frame: pl.DataFrame, columns: Sequence[str], row: Int64s) -> pl.DataFrame:
    """Take rows of some columns; all null where the row is -1."""
    chosen = frame[list(columns)]
    return pl.concat([chosen, chosen.clear(1)])[row]


def find_rows(ids: Int64s, wanted: Int64s) -> Int64s:
    """Find the row of each wanted id among ids; -1 where it is not there."""
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
    """Find the place of each row's device among `devices` (`list_devices`); -1 where it is not there."""
    process, device = (frame[name].to_numpy() for name in _DEVICE)
    place = np.full(len(frame), -1)
    for at, (one_process, one_device) in enumerate(devices.iter_rows()):
        place[(process == one_process) & (device == one_device)] = at
    return place
