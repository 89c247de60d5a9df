"""Main streams of a device: the streams with most of its kernels other than communication.

Other streams run short kernels aside, for example to unpack the next batch; nothing waits for these, or they are not the
work of a step.
"""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.types import Bools, Int64s

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
