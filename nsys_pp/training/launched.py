"""Operations of a report, the calls that launched them, and their devices, as arrays."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, are_among, find_distinct, index_rows, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls, mark_off_clocks
from nsys_pp.arrays.names import list_names
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import KERNEL_KINDS

# What identifies a device of a report.
DEVICE = ["process_key", "device_id"]


def list_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """List the devices in a frame: process_key, device_id; by both."""
    devices = frame[[*DEVICE]]
    process, device = (devices[name].to_numpy() for name in DEVICE)
    if len(frame) and (process == process[0]).all() and (device == device[0]).all():
        return devices.head(1)
    return devices.unique().sort(DEVICE)


def number_devices(frame: pl.DataFrame, devices: pl.DataFrame) -> Int64s:
    """Find the index of each row's device in `devices` (`list_devices`); -1 without one."""
    process, device = (numbers(frame[name]) for name in DEVICE)
    return find_device_numbers(process, device, devices)


def find_device_numbers(process: Int64s, device: Int64s, devices: pl.DataFrame) -> Int64s:
    """Find the index of each process and device in `devices`; -1 without one."""
    index = np.full(len(process), -1)
    for number, (process_key, device_id) in enumerate(devices.iter_rows()):
        if device_id is not None:
            index[(process == process_key) & (device == device_id)] = number
    return index


def repeat_devices(devices: pl.DataFrame, index: Int64s) -> list[pl.Series]:
    """Return the columns process_key and device_id for indices in `devices`.

    They are constant if there is one device, as usual.
    """
    if len(devices) != 1:
        return index_rows(devices, index).get_columns()
    return [column.new_from_index(0, len(index)) for column in devices]


# An operation that starts later than this after its launch, or its holder, is not explained by it.
LATE_NS = 50_000

_LEAST_SHARE = 0.2  # of the kernel time of the stream of the device with most


def mark_main_streams(group: Int64s, stream: Int64s, *, is_compute: Bools, duration: Int64s) -> Bools:
    """Return the mask of operations of any kind on main streams.

    Args:
        group: Index of the device of each operation.
        stream: Number of its stream.
        is_compute: Mask of kernels and graphs that are not communication.
        duration: ns.
    """
    first, number = find_distinct(stream)
    total = np.bincount(number, weights=np.where(is_compute, duration, 0))
    device = group[first]
    most = np.zeros(int(group.max(initial=-1)) + 2)
    np.maximum.at(most, device, total)
    has_kernels = np.bincount(number, weights=is_compute) > 0
    return np.asarray((has_kernels & (total >= _LEAST_SHARE * most[device]))[number])


class LaunchedOps:
    """Operations and calls of a report.

    Arrays of operations are by row of `GPU_OPS`, those of calls by row of `API_CALLS`; `NEVER` stands for
    null.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Attributes:
        devices: Devices of the operations (`list_devices`).
        device: Index of the device of each operation.
        stream: Number of its stream, equal for operations of one stream of a device.
        start: Its start.
        end: Its end.
        names: Names of the operations.
        is_kernel: Mask of kernels and CUDA graphs.
        is_copy: Mask of copies and sets.
        is_communication: Mask of communication.
        is_compute: Mask of kernels and CUDA graphs that are not communication.
        is_main: Mask of operations on main streams (`mark_main_streams`).
        is_main_kernel: Mask of kernels and CUDA graphs on main streams that are not communication.
        is_aside: Mask of operations that are no communication, and not on a main stream, as copies of the
            next batch.
        call: Row of the call that launched each operation; -1 where unknown.
        launch: Start of this call.
        launched: End of this call.
        thread: Thread of this call.
        issue: Start of this call; of the operation, where the call is unknown.
        issued: End of this call; start of the operation, where the call is unknown.
        calls: Names of the calls.
    """

    def __init__(self, *, gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> None:
        self.gpu_ops, self.api_calls, self.launches = gpu_ops, api_calls, launches
        self.devices = list_devices(gpu_ops)
        self.device = number_devices(gpu_ops, self.devices)
        self.stream = pack(self.device, numbers(gpu_ops["context_id"]), numbers(gpu_ops["stream_id"]))
        self.start, self.end = numbers(gpu_ops["start_ns"]), numbers(gpu_ops["end_ns"])
        self.names, self.calls = list_names(gpu_ops["name"]), list_names(api_calls["name"])
        self.is_kernel, self.is_copy = are_among(gpu_ops["kind"], KERNEL_KINDS, ("memcpy", "memset"))
        self.is_communication: Bools = gpu_ops["is_communication"].to_numpy()
        self.is_compute: Bools = ~self.is_communication & self.is_kernel
        self.is_main = mark_main_streams(
            self.device, self.stream, is_compute=self.is_compute, duration=self.end - self.start
        )
        self.is_main_kernel: Bools = self.is_main & self.is_compute
        self.is_aside: Bools = ~self.is_communication & ~self.is_main
        self.call = find_launch_calls(
            gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches
        )
        self.launch, self.launched, self.thread = (
            gather_calls(api_calls[name], self.call) for name in ("start_ns", "end_ns", "thread_key")
        )
        self.issue, self.issued = (
            np.where(self.call < 0, self.start, times) for times in (self.launch, self.launched)
        )

    def list_by_start(self, is_chosen: Bools) -> Int64s:
        """List the rows of some operations in order of their starts."""
        rows = np.flatnonzero(is_chosen)
        return rows[np.argsort(self.start[rows], kind="stable")]

    @cached_property
    def is_off(self) -> Bools:
        """Mask of devices whose clock is off."""
        known = np.flatnonzero(self.call >= 0)
        return mark_off_clocks(self.device[known], self.launch[known] - self.start[known], len(self.devices))

    @cached_property
    def limits(self) -> tuple[Int64s, Int64s]:
        """Start of the first operation of each device, and end of its last one."""
        first, last = np.full(len(self.devices), -NEVER), np.full(len(self.devices), NEVER)
        np.minimum.at(first, self.device, self.start)
        np.maximum.at(last, self.device, self.end)
        return first, last

    @cached_property
    def by_end(self) -> Int64s:
        """Rows of the operations in order of their ends; only waits need it."""
        return np.argsort(self.end, kind="stable")
