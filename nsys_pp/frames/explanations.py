"""Data that explain findings of a verdict, read when a finding needs them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
from msgspec import Struct

from nsys_pp.frames.requested import HOST_TIMES, METRIC_SUMS


class Explanations(Struct, frozen=True, kw_only=True):
    """Functions that read the data.

    Attributes:
        read_clocks: Clocks of the SMs during the kernels of each step (`METRIC_SUMS`, group "compute").
        read_hosts: Activities of the hosts of some lanes in bubbles of causes "host" and "data" (`HOST_TIMES`).
    """

    read_clocks: Callable[[], pl.DataFrame] = METRIC_SUMS.to_frame
    read_hosts: Callable[[Collection[int]], pl.DataFrame] = lambda lanes: HOST_TIMES.to_frame()


NONE = Explanations()
"""Nothing is recorded, or reports are not to be read once more."""
