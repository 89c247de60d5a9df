"""Main streams of a device: the streams with most of its kernels other than communication.

Other streams run short kernels aside, for example to unpack the next batch; nothing waits for these, or they are not the
work of a step.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import find_distinct, is_among, numbers, pack
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.report import KERNEL_KINDS

_LEAST_SHARE = 0.2  # of the kernel time of the stream of the device with most


def mark_main_streams(gpu_ops: pl.DataFrame, group: Int64s) -> Bools:
    """Return the mask of operations of any kind on main streams.

    Args:
        gpu_ops: `GPU_OPS`.
        group: Index of the device of each operation.
    """
    stream = pack(group, numbers(gpu_ops["context_id"]), numbers(gpu_ops["stream_id"]))
    _, number = find_distinct(stream)
    is_compute = ~gpu_ops["is_communication"].to_numpy() & is_among(gpu_ops["kind"], KERNEL_KINDS)
    duration = np.where(is_compute, numbers(gpu_ops["end_ns"]) - numbers(gpu_ops["start_ns"]), 0)
    total = np.bincount(number, weights=duration)
    device = np.zeros(len(total), dtype=np.int64)
    device[number] = group
    most = np.zeros(int(group.max(initial=-1)) + 2)
    np.maximum.at(most, device, total)
    has_kernels = np.bincount(number, weights=is_compute) > 0
    is_main: Bools = (has_kernels & (total >= _LEAST_SHARE * most[device]))[number]
    return is_main
