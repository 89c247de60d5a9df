"""Samples of a metric, averaged over windows: a value is valid until the next sample."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Floats, Int64s


def average_windows(times: Int64s, values: Floats, edges: Int64s) -> Floats:
    """Average samples over the windows between edges, weighted by time.

    Args:
        times: Of at least two samples, ascending.
        values: Of the samples.
        edges: Ascending, from the first to the last time.

    >>> average_windows(np.array([0, 4, 10]), np.array([1.0, 7.0, 9.0]), np.array([0, 8, 10])).tolist()
    [4.0, 7.0]
    """
    means: Floats = np.diff(integrate(times, values, edges)) / np.diff(edges)
    return means


def integrate(times: Int64s, values: Floats, edges: Int64s) -> Floats:
    """Integrate samples from the first one to each edge; arguments as in `average_windows`."""
    sums = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(times) - 2)
    integrals: Floats = sums[at] + values[at] * (edges - times[at])
    return integrals


def find_peaks(times: Int64s, values: Floats, start: Int64s, end: Int64s) -> Floats:
    """Find the largest sample that is valid in each interval.

    Args:
        times: Of at least two samples, ascending.
        values: Of the samples.
        start: Starts of intervals, from the first time on.
        end: Their ends, after the starts, until the last time, whose sample is valid in none.

    >>> find_peaks(np.array([0, 4, 10]), np.array([1.0, 7.0, 9.0]), np.array([0, 3]), np.array([4, 10])).tolist()
    [1.0, 7.0]
    """
    if not len(start):
        return np.zeros(0)
    first = np.searchsorted(times, start, side="right") - 1
    stop = np.searchsorted(times, end, side="left")
    peaks: Floats = np.maximum.reduceat(np.append(values, -np.inf), np.column_stack([first, stop]).ravel())[
        ::2
    ]
    return peaks
