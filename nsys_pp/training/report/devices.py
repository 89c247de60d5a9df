"""Devices of a frame, and their indices."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import index_rows, numbers
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import select_columns

_DEVICE = ["process_key", "device_id"]


def list_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """List the devices in a frame: process_key, device_id; by both."""
    devices = select_columns(frame, _DEVICE)
    process, device = (devices[name].to_numpy() for name in _DEVICE)
    if len(frame) and (process == process[0]).all() and (device == device[0]).all():
        return devices.head(1)
    return devices.unique().sort(_DEVICE)


def number_devices(frame: pl.DataFrame, devices: pl.DataFrame) -> Int64s:
    """Find the index of each row's device in `devices` (`list_devices`); -1 without one."""
    process, device = (numbers(frame[name]) for name in _DEVICE)
    return find_device_numbers(process, device, devices)


def find_device_numbers(process: Int64s, device: Int64s, devices: pl.DataFrame) -> Int64s:
    """Find the index of each process and device in `devices`; -1 without one."""
    index = np.full(len(process), -1)
    for number, (process_key, device_id) in enumerate(devices.iter_rows()):
        if device_id is not None:
            index[(process == process_key) & (device == device_id)] = number
    return index


def repeat_devices(devices: pl.DataFrame, index: Int64s) -> list[pl.Series]:
    """Return the columns process_key and device_id for indices in `devices`; constant ones if there is one device, as usual."""
    if len(devices) != 1:
        return index_rows(devices, index).get_columns()
    return [column.new_from_index(0, len(index)) for column in devices]
