"""Straight lines through points of which many are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_pp.arrays.types import Floats

MOST_DRIFT = 250e-6
"""Clocks of two machines run apart by at most this share: twice 100 ppm, and some."""

_DRIFT_SIGMA = 60e-6
_ROUNDS = 12
_FEW = 5  # values of which none may be left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is to be added to a time: `offset_ns + rate * (time - center_ns)`."""

    offset_ns: float = 0.0
    rate: float = 0.0
    center_ns: float = 0.0

    def at(self, times: Floats) -> Floats:
        """Return what is to be added at each time."""
        return self.offset_ns + self.rate * (times - self.center_ns)

    def apart_ns(self, other: Line) -> float:
        """Return how far another line is from this one at its center."""
        return abs(other.offset_ns + other.rate * (self.center_ns - other.center_ns) - self.offset_ns)

    def then(self, other: Line) -> Line:
        """Return what has to be added for this line and then another one.

        >>> Line(offset_ns=5.0).then(Line(offset_ns=1.0, rate=0.5, center_ns=3.0))
        Line(offset_ns=7.0, rate=0.5, center_ns=0.0)
        """
        placed = self.center_ns + self.offset_ns
        return Line(
            offset_ns=self.offset_ns + other.offset_ns + other.rate * (placed - other.center_ns),
            rate=self.rate + other.rate + self.rate * other.rate,
            center_ns=self.center_ns,
        )

    def moved(self, offset_ns: float) -> Line:
        """Return the line shifted."""
        return Line(offset_ns=self.offset_ns + offset_ns, rate=self.rate, center_ns=self.center_ns)


def scale_of(residuals: Floats) -> float:
    """Measure the spread of most residuals: the standard deviation, were they normal.

    >>> scale_of(np.array([-1.0, 0.0, 1.0, 100.0]))
    1.4826
    """
    return 1.4826 * float(np.median(np.abs(residuals))) if len(residuals) else 0.0


def spread_of(residuals: Floats) -> float:
    """Measure the spread of all residuals but a fifth: as `scale_of`, but few that agree by chance are not enough.

    >>> round(spread_of(np.array([-1.0, 0.0, 1.0, 1.0, 1.0, 100.0])), 2)
    0.78
    """
    if not len(residuals):
        return 0.0
    if len(residuals) < _FEW:
        return float(np.abs(residuals).max())
    return float(np.quantile(np.abs(residuals), 0.8, method="lower")) / 1.2816


def densest(values: Floats, width: float, weights: Floats | None = None) -> tuple[int, int]:
    """Find the window `[v, v + width]` that holds most (weight); return its first and last + 1 place in sorted values."""
    stops = np.searchsorted(values, values + width, side="right")
    if weights is None:
        first = int(np.argmax(stops - np.arange(len(values))))
    else:
        sums = np.concatenate(([0.0], np.cumsum(weights)))
        first = int(np.argmax(sums[stops] - sums[:-1]))
    return first, int(stops[first])


def find_line(times: Floats, values: Floats, *, width: float) -> Line:
    """Find the line that most points lie near, by trying slopes; `width` is twice what counts as near.

    Args:
        times: ns, one or more.
        values: ns.
        width: ns.
    """
    center = float(np.median(times))
    span = float(np.max(np.abs(times - center)))
    count = 1 if len(times) < 3 else int(min(401, 1 + 2 * np.ceil(MOST_DRIFT * span / (width / 4))))
    best, chosen = -1, Line(center_ns=center)
    for rate in sorted(np.linspace(-MOST_DRIFT, MOST_DRIFT, count) if count > 1 else [0.0], key=abs):
        level = np.sort(values - rate * (times - center))
        first, stop = densest(level, width)
        if stop - first > best:
            best = stop - first
            chosen = Line(offset_ns=float(np.median(level[first:stop])), rate=float(rate), center_ns=center)
    return chosen


def fit_line(times: Floats, values: Floats, start: Line, *, floor_ns: float) -> Line:
    """Fit a line to points near `start`, of which few are wrong: by least squares with Cauchy's weights.

    The slope is held near 0 by what oscillators do (a prior of 60 ppm), so few points, or points
    close in time, do not make one up.

    Args:
        times: ns.
        values: ns.
        start: Where to begin.
        floor_ns: Points within this are all as good.
    """
    if len(times) < 2:
        return start if not len(times) else Line(offset_ns=float(values[0]), center_ns=float(times[0]))
    center = float(np.mean(times))
    line = Line(offset_ns=float(start.at(np.array([center]))[0]), rate=start.rate, center_ns=center)
    x = times - center
    for _ in range(_ROUNDS):
        residuals = values - line.at(times)
        scale = max(scale_of(residuals), floor_ns)
        weights = 1 / (1 + (residuals / (2 * scale)) ** 2)
        total, sx, sxx = weights.sum(), (weights * x).sum(), (weights * x * x).sum()
        sy, sxy = (weights * values).sum(), (weights * x * values).sum()
        sxx += (scale / _DRIFT_SIGMA) ** 2
        rate = float((total * sxy - sx * sy) / (total * sxx - sx * sx))
        line = Line(offset_ns=float((sy - rate * sx) / total), rate=rate, center_ns=center)
    return line
