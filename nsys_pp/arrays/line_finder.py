"""Fits of lines to points and sums of values, compiled (`core.c`), with the results of `nsys_pp.alignment.lines` to the last bit: the numpy functions are the definition."""

from __future__ import annotations

import ctypes

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.core_arguments import MOST_ROWS, find_address
from nsys_pp.arrays.types import Floats, Int64s

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
    if count >= MOST_ROWS:
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


def find_lines(
    core: Core,
    times: Floats,
    values: Floats,
    rows: Int64s,
    bounds: Int64s,
    width: float,
    *,
    most: float,
    most_rates: int,
) -> Floats | None:
    """Find a line through some points each: `find_line` with as many rates as the times between them need.

    Args:
        core: The library.
        times: Of all points.
        values: Of each.
        rows: Points of each line, one line after the other.
        bounds: First row of each line, ascending, and their number; each has one or more.
        width: As for `find_line`.
        most: Largest rate, above 0.
        most_rates: Largest number of rates, odd.

    Returns:
        Offset, rate and center of each, in columns; None where a number is infinite, or none.

    Raises:
        ValueError: Columns have different lengths, or a point is not there.
        MemoryError: Memory is short.
    """
    is_point = rows.min(initial=0) >= 0 and rows.max(initial=-1) < len(times) == len(values)
    is_listed = bounds[0] == 0 and bounds[-1] == len(rows) and (bounds[1:] > bounds[:-1]).all()
    if not (is_point and is_listed and most_rates % 2 and most_rates > 0):
        raise ValueError("columns of different lengths, or without points")
    lines = np.empty((len(bounds) - 1, 3))
    integers = [np.ascontiguousarray(column, dtype=np.int64) for column in (bounds, rows)]
    columns = [*integers, _floats(times), _floats(values)]  # held as long as their addresses
    result = core.find_lines(
        len(lines), *map(find_address, columns), width, most, most_rates, find_address(lines)
    )
    if result < 0:
        raise MemoryError
    return None if result else lines


def sum_sections(core: Core, values: Floats, bounds: Int64s) -> Floats:
    """Sum values by section, as numpy sums an array of each.

    Args:
        core: The library.
        values: To sum.
        bounds: First one of each section, ascending, and their number.

    Raises:
        ValueError: A section is not there.
    """
    if bounds[0] < 0 or bounds[-1] > len(values) or (bounds[1:] < bounds[:-1]).any():
        raise ValueError("a section that is not there")
    sums = np.empty(len(bounds) - 1)
    columns = np.ascontiguousarray(bounds, dtype=np.int64), _floats(values)
    core.sum_sections(len(sums), *map(find_address, columns), find_address(sums))
    return sums


def _floats(values: Floats) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)
