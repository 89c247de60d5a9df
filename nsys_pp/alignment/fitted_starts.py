"""Lines fitted to the operations near first lines, one to each of the sharpest pairs of channels.

Unrelated channels in lockstep have many operations near a first line, and would outweigh the few that are shared in a fit of all.
"""

from __future__ import annotations

import itertools

import numpy as np

from nsys_pp.alignment.evidence import list_tested, pair_by_line
from nsys_pp.alignment.lines import DRIFT_SIGMA, FLOOR_NS, ROUNDS, Line, fit_line, list_lines, stack_lines
from nsys_pp.alignment.near import Comparison
from nsys_pp.arrays import near_lines
from nsys_pp.arrays.near_finder import NearFinder
from nsys_pp.arrays.near_lines import LineStarts, LineWeights, StartFits
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS


def fit_starts(comparison: Comparison, starts: LineStarts, scatter_ns: float) -> StartFits:
    """Fit lines to the operations near each first line.

    Args:
        comparison: Events and operations.
        starts: First lines, and the pairs that fits begin with.
        scatter_ns: Expected scatter of the ends of one operation.

    Returns:
        The fits; `weights` as of `nsys_pp.alignment.evidence.weigh_lines`.
    """
    finder = comparison.finder
    if isinstance(finder, NearFinder):
        fits = near_lines.fit_starts(
            finder,
            starts,
            SKEW_NS,
            SKEW_NS,
            scatter=scatter_ns,
            floor=FLOOR_NS,
            drift=DRIFT_SIGMA,
            rounds=ROUNDS,
            tested=list_tested(comparison),
        )
        if fits is not None:
            return fits
    pairs, none = (starts.point, starts.residual), np.zeros((0, 1))
    lines = [
        stack_lines(_fit_start(comparison, line, bounds, *pairs, scatter_ns))
        for line, bounds in zip(list_lines(starts.lines), starts.bounds.tolist(), strict=True)
    ]
    weights = LineWeights(evidence=none, exchange_evidence=none, sharpest=none)
    return StartFits(lines=lines, weighed=np.zeros((0, 3)), weights=weights)


def _fit_start(
    comparison: Comparison,
    line: Line,
    bounds: list[int],
    point: Int64s,
    residual_ns: Floats,
    scatter_ns: float,
) -> list[Line]:
    """Fit lines to the lists of pairs of a first line, and each to the pairs of the fitted line."""
    events, reference = comparison.events, comparison.reference
    lines: list[Line] = []
    for first, stop in itertools.pairwise(bounds):
        if first == stop:
            continue
        times = events.end[point[first:stop]]
        fitted = fit_line(times, residual_ns[first:stop] + line.at(times), line, floor_ns=FLOOR_NS)
        pairs = pair_by_line(comparison, fitted, (scatter_ns,))
        if len(pairs.event_row):
            times = events.end[pairs.event_row]
            values = reference.times[pairs.reference_row] - times
            fitted = fit_line(times, values, fitted, floor_ns=FLOOR_NS, noise=pairs.scatter_ns)
        if all(fitted.distance_ns(other) > FLOOR_NS for other in lines):
            lines.append(fitted)
    return lines
