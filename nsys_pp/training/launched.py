"""Operations of a report, the calls that launched them, and their devices, as arrays."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import find_distinct, index_rows, keep_rows, mark_categories, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.names import Names, list_names
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import KERNEL_KINDS, OP_KIND

_DEVICE = ["process_key", "device_id"]


def list_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """List the devices in a frame: process_key, device_id; by both."""
    devices = frame[[*_DEVICE]]
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
    """Return the columns process_key and device_id for indices in `devices`.

    They are constant if there is one device, as usual.
    """
    if len(devices) != 1:
        return index_rows(devices, index).get_columns()
    return [column.new_from_index(0, len(index)) for column in devices]


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
    is_main: Bools = (has_kernels & (total >= _LEAST_SHARE * most[device]))[number]
    return is_main


_IS_KERNEL = mark_categories(OP_KIND, KERNEL_KINDS)
_IS_SET = mark_categories(OP_KIND, ("memset",))
_IS_COPY = mark_categories(OP_KIND, ("memcpy", "memset"))


class LaunchedOps(Struct, frozen=True, kw_only=True, dict=True):
    """Operations and calls of a report; each array is built on first use, and kept.

    Arrays of operations are by row of `GPU_OPS`, those of calls by row of `API_CALLS`; `NEVER` stands for
    null.
    """

    gpu_ops: pl.DataFrame  # `GPU_OPS`, in order of op_id
    api_calls: pl.DataFrame  # `API_CALLS`
    launches: pl.DataFrame  # `LAUNCHES` of both

    @property
    def causes(self) -> dict[str, pl.DataFrame]:
        """Return the frames as keyword arguments."""
        return {"gpu_ops": self.gpu_ops, "api_calls": self.api_calls, "launches": self.launches}

    @cached_property
    def devices(self) -> pl.DataFrame:
        """Devices of the operations (`list_devices`)."""
        return list_devices(self.gpu_ops)

    @cached_property
    def device(self) -> Int64s:
        """Index of the device of each operation."""
        return number_devices(self.gpu_ops, self.devices)

    def list_device_ops(self, device: int) -> pl.DataFrame:
        """List the operations of a device (`GPU_OPS`), by its index."""
        return keep_rows(self.gpu_ops, self.device == device)

    @cached_property
    def start(self) -> Int64s:
        """Start of each operation."""
        return numbers(self.gpu_ops["start_ns"])

    @cached_property
    def end(self) -> Int64s:
        """End of each operation."""
        return numbers(self.gpu_ops["end_ns"])

    @cached_property
    def names(self) -> Names:
        """Names of the operations."""
        return list_names(self.gpu_ops["name"])

    @cached_property
    def is_kernel(self) -> Bools:
        """Mask of kernels and CUDA graphs."""
        return self._find_kinds(_IS_KERNEL)

    @cached_property
    def is_copy(self) -> Bools:
        """Mask of copies and sets."""
        return self._find_kinds(_IS_COPY)

    @property
    def is_set(self) -> Bools:
        """Mask of sets."""
        return self._find_kinds(_IS_SET)

    @cached_property
    def is_communication(self) -> Bools:
        """Mask of communication."""
        mask: Bools = self.gpu_ops["is_communication"].to_numpy()
        return mask

    @cached_property
    def is_compute(self) -> Bools:
        """Mask of kernels and CUDA graphs that are not communication."""
        return ~self.is_communication & self.is_kernel

    @cached_property
    def is_main(self) -> Bools:
        """Mask of operations on main streams (`mark_main_streams`)."""
        return mark_main_streams(
            self.device, self.stream, is_compute=self.is_compute, duration=self.end - self.start
        )

    @cached_property
    def stream(self) -> Int64s:
        """Number of the stream of each operation, equal for operations of one stream of a device."""
        context_id, stream_id = (numbers(self.gpu_ops[name]) for name in ("context_id", "stream_id"))
        return pack(self.device, context_id, stream_id)

    @cached_property
    def call(self) -> Int64s:
        """Row of the call that launched each operation; -1 where unknown."""
        return find_launch_calls(self.gpu_ops["op_id"], **self.causes)

    @cached_property
    def launch(self) -> Int64s:
        """Start of this call."""
        return gather_calls(self.api_calls["start_ns"], self.call)

    @cached_property
    def launched(self) -> Int64s:
        """End of this call."""
        return gather_calls(self.api_calls["end_ns"], self.call)

    @cached_property
    def thread(self) -> Int64s:
        """Thread of this call."""
        return gather_calls(self.api_calls["thread_key"], self.call)

    @cached_property
    def calls(self) -> Names:
        """Names of the calls."""
        return list_names(self.api_calls["name"])

    def _find_kinds(self, is_kind: Bools) -> Bools:
        mask: Bools = is_kind[self._kind]
        return mask

    @cached_property
    def _kind(self) -> Int64s:
        return numbers(self.gpu_ops["kind"])
