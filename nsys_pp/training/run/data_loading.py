"""Bubbles in which the host loads data: cut out of late launches, and of the ends of steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.intervals import Overlaps, intersect, subtract, unite
from nsys_pp.frames.training import CAUSE


def cut_loading(states: pl.DataFrame, loads: pl.DataFrame, *, owner: str) -> pl.DataFrame:
    """Cut data loading out of the states with cause "host" or "idle".

    Args:
        states: `owner`, cause (null where unknown), start_ns, end_ns, and any other columns.
        loads: `owner`, host_start_ns and host_end_ns of data loading jobs.
        owner: Column of integers: states are cut by the loads of the same owner.

    Returns:
        The same columns, in any order; the parts that are cut out have cause "data". No state is empty.
    """
    loading = unite(*(numbers(loads[name]) for name in (owner, "host_start_ns", "host_end_ns")))
    if not len(loading.owner):
        return states
    is_free = states["cause"].is_in(["host", "idle"]).fill_null(value=False)
    free = states.filter(is_free)
    start, end = numbers(free["start_ns"]), numbers(free["end_ns"])
    data = intersect(numbers(free[owner]), start, end, loading)
    return pl.concat(
        [
            states.filter(~is_free),
            free[np.setdiff1d(np.arange(len(free)), data.row)],
            _take(free, subtract(start, end, data)),
            _take(free, data).with_columns(cause=pl.lit("data", CAUSE)),
        ]
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _take(states: pl.DataFrame, parts: Overlaps) -> pl.DataFrame:
    return states[parts.row].with_columns(pl.Series("start_ns", parts.start), pl.Series("end_ns", parts.end))
