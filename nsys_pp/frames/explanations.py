"""Data that explain findings of a verdict, read when a finding needs them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from msgspec import Struct

from nsys_pp.frames.requested import METRIC_SUMS


class Explanations(Struct, frozen=True, kw_only=True):
    """Functions that read the data.

    Attributes:
        read_clocks: Clocks of the SMs during the kernels of each step (`METRIC_SUMS`, group "compute").
    """

    read_clocks: Callable[[], pl.DataFrame] = METRIC_SUMS.to_frame


NONE = Explanations()
"""Nothing is recorded, or reports are not to be read once more."""
