"""Fits of lines to points, compiled (`core.c`), with the results of `nsys_pp.alignment.lines` to the last bit: the numpy functions are the definition."""

from __future__ import annotations

import ctypes

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import find_address
from nsys_pp.arrays.types import Floats

_Line = ctypes.c_double * 3  # offset, rate and center
_FIT_COLUMNS = 5  # of room, for each point


def fit_line(
    core: Core,
    times: Floats,
    values: Floats,
    line: tuple[float, float, float],
    *,
    floor: float,
    drift: float,
    rounds: int,
    noise: Floats | None,
) -> tuple[float, float, float] | None:
    """Fit a line to points by least squares with Cauchy weights.

    Args:
        core: The library.
        times: Two or more.
        values: Of each.
        line: Offset, rate and center of the line to begin with.
        floor: Lower limit of the scale of residuals.
        drift: Standard deviation of rates.
        rounds: Number of fits, each weighed by the residuals of the one before.
        noise: Relative noise of each point, above 0; None: all are equal.

    Returns:
        Offset, rate and center; None where a number is infinite, or none.

    Raises:
        ValueError: Columns have different lengths.
    """
    count = len(times)
    if not count or len(values) != count or (noise is not None and len(noise) != count):
        raise ValueError("columns of different lengths, or without points")
    times, values = _floats(times), _floats(values)
    noise = None if noise is None else _floats(noise)
    room, found = np.empty(_FIT_COLUMNS * count), _Line(*line)
    if core.fit_line(
        *(count, find_address(times), find_address(values), None if noise is None else find_address(noise)),
        *(floor, drift, rounds, find_address(room), ctypes.addressof(found)),
    ):
        return None
    return found[0], found[1], found[2]


def find_line(
    core: Core, times: Floats, values: Floats, rates: Floats, width: float
) -> tuple[float, float] | None:
    """Find the rate by which most points are within a width.

    Args:
        core: The library.
        times: One or more, from their center.
        values: Of each.
        rates: To try; one or more. Of equal ones the first is found.
        width: Largest distance of the points that are counted, above 0.

    Returns:
        The median level of these points, and the rate; None where a number is infinite, or none.

    Raises:
        ValueError: Columns have different lengths, or are empty.
    """
    count = len(times)
    if count != len(values) or not count or not len(rates):
        raise ValueError("columns of different lengths, or without points")
    if count >= 1 << 31:
        return None
    level, ordered, keys = np.empty(count), np.empty(count, np.int64), np.empty(2 * count, np.uint64)
    order, rows, found = np.empty(count, np.uint32), np.empty(2 * count, np.uint32), np.zeros(2)
    addresses = (find_address(column) for column in (level, ordered, order, keys, rows, found))
    columns = _floats(times), _floats(values), _floats(rates)  # held as long as their addresses
    own, others, tried = (find_address(column) for column in columns)
    if core.find_line(count, own, others, len(rates), tried, width, *addresses):
        return None
    offset, rate = found.tolist()
    return offset, rate


def _floats(values: Floats) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)
