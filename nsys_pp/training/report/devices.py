"""Devices of a frame, and their indices."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s

_DEVICE = ["process_key", "device_id"]


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
