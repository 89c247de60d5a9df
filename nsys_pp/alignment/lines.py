"""Robust straight lines through points with many outliers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.compiled import load_library

MAX_DRIFT = 200e-6
"""Maximal relative drift between the clocks of two machines: twice 100 ppm."""

DRIFT_SIGMA = 60e-6
"""Of real oscillators."""


FLOOR_NS = 2_000.0
"""Of the scatter in a fit of operations."""

_ROUNDS = 6  # of a fit, each weighed by the residuals of the one before
_MOST_RATES = 401  # to try; odd
_FIT = load_library(Path(__file__).with_name("near.c"), {}).near_fit_line
_FIT.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_double, ctypes.c_double, ctypes.c_int64]
_FIT.argtypes += [ctypes.c_void_p, ctypes.c_void_p]


class Line(Struct, frozen=True, kw_only=True):
    """A correction, added to times: `offset_ns + rate * (time - center_ns)`."""

    offset_ns: float = 0.0
    rate: float = 0.0
    center_ns: float = 0.0

    def at(self, times: Floats) -> Floats:
        """Return the correction at each time."""
        return self.offset_ns + self.rate * (times - self.center_ns)

    def distance_ns(self, other: Line) -> float:
        """Return the distance of another line from this one, at the center of this one."""
        return abs(other.offset_ns + other.rate * (self.center_ns - other.center_ns) - self.offset_ns)

    def compose(self, other: Line) -> Line:
        """Return the correction by this line followed by another one.

        >>> Line(offset_ns=5.0).compose(Line(offset_ns=1.0, rate=0.5, center_ns=3.0))
        Line(offset_ns=7.0, rate=0.5, center_ns=0.0)
        """
        corrected = self.center_ns + self.offset_ns
        return Line(
            offset_ns=self.offset_ns + other.offset_ns + other.rate * (corrected - other.center_ns),
            rate=self.rate + other.rate + self.rate * other.rate,
            center_ns=self.center_ns,
        )

    def shifted(self, offset_ns: float) -> Line:
        """Return the line shifted by an offset."""
        return Line(offset_ns=self.offset_ns + offset_ns, rate=self.rate, center_ns=self.center_ns)


def mad_sigma(residuals: Floats) -> float:
    """Estimate the standard deviation of residuals from their median absolute value.

    >>> mad_sigma(np.array([-1.0, 0.0, 1.0, 100.0]))
    1.4826
    """
    return 1.4826 * find_median(np.abs(residuals)) if len(residuals) else 0.0


def find_quantile(values: Floats, share: float) -> float:
    """Return the value with a share of all at or below it, between the two nearest in proportion.

    As `np.quantile`, in a tenth of its time.

    >>> find_quantile(np.array([3.0, 1.0, 2.0]), 0.75)
    2.5
    """
    position = (len(values) - 1) * share
    low = int(position)
    high = min(low + 1, len(values) - 1)
    ordered = np.partition(values, (low, high))
    first, last, part = float(ordered[low]), float(ordered[high]), position - low
    apart = last - first
    return first + apart * part if part < 0.5 else last - apart * (1 - part)  # rounded as by numpy


def find_median(values: Floats) -> float:
    """Return the median of one value or more; several times faster than NumPy's for few values."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, (low, high))
    return float(ordered[low] + ordered[high]) / 2


def find_line(times: Floats, values: Floats, *, width: float) -> Line:
    """Find the line with most points within `width / 2`, by trying slopes.

    Args:
        times: ns, one or more.
        values: ns.
        width: ns.
    """
    center = find_median(times)
    span = float(np.max(np.abs(times - center)))
    count = 1 if len(times) < 3 else int(min(_MOST_RATES, 1 + 2 * np.ceil(MAX_DRIFT * span / (width / 4))))
    best, most = Line(center_ns=center), 0
    for rate in _list_rates(count).tolist():
        level = np.sort(values - rate * (times - center))
        stops = np.searchsorted(level, level + width, side="right")
        inside = stops - np.arange(len(level))
        first = int(np.argmax(inside))
        if inside[first] > most:
            most = int(inside[first])
            best = Line(offset_ns=find_median(level[first : first + most]), rate=rate, center_ns=center)
    return best


def find_lines(times: Floats, values: Floats, windows: Sequence[Int64s], *, width: float) -> Floats:
    """Find a line through the points of each window, as `find_line`.

    Args:
        times: Of all points, ns.
        values: ns.
        windows: Rows of the points of each line, one or more.
        width: ns.

    Returns:
        Offset, rate and center of each line, in columns.
    """
    return stack_lines([find_line(times[window], values[window], width=width) for window in windows])


def stack_lines(lines: Sequence[Line]) -> Floats:
    """Return offset, rate and center of each line, in columns."""
    return np.array([(line.offset_ns, line.rate, line.center_ns) for line in lines]).reshape(-1, 3)


def list_lines(rows: Floats) -> list[Line]:
    """Return the line of each row of columns with offset, rate and center."""
    return [Line(offset_ns=offset, rate=rate, center_ns=center) for offset, rate, center in rows.tolist()]


def measure_distances(lines: Floats, other: Floats) -> Floats:
    """Return the distance of another line from each, as `Line.distance_ns`.

    Args:
        lines: Offset, rate and center of each, in columns.
        other: The same of one.
    """
    distances: Floats = np.abs(other[0] + other[1] * (lines[:, 2] - other[2]) - lines[:, 0])
    return distances


@cache
def _list_rates(count: int) -> Floats:
    """List rates to try, the smallest first; 0 is one of them, as their number is odd."""
    rates = np.array(sorted(np.linspace(-MAX_DRIFT, MAX_DRIFT, count) if count > 1 else [0.0], key=abs))
    rates.flags.writeable = False
    return rates


def fit_line(
    times: Floats, values: Floats, start: Line, *, floor_ns: float, noise: Floats | None = None
) -> Line:
    """Fit a line to points near `start` with few outliers, by least squares with Cauchy weights.

    A prior of 60 ppm (the drift of real oscillators) holds the slope near 0 where points are few or
    close in time.

    Args:
        times: ns.
        values: ns.
        start: Initial line.
        floor_ns: Lower limit of the residual scale.
        noise: Relative noise of each point; None: all are equal.
    """
    if len(times) < 2:
        return start if not len(times) else Line(offset_ns=float(values[0]), center_ns=float(times[0]))
    relative = None if noise is None else noise / find_median(noise)
    columns = [np.ascontiguousarray(column, dtype=np.float64) for column in (times, values)]
    room, line = np.empty(len(times)), (ctypes.c_double * 3)(start.offset_ns, start.rate, start.center_ns)
    addresses = [column.ctypes.data for column in columns]
    held = None if relative is None else np.ascontiguousarray(relative, dtype=np.float64)
    addresses.append(0 if held is None else held.ctypes.data)
    if _FIT(len(times), *addresses, floor_ns, DRIFT_SIGMA, _ROUNDS, line, room.ctypes.data):
        raise ValueError("a line through points that are not finite")
    return Line(offset_ns=line[0], rate=line[1], center_ns=line[2])
