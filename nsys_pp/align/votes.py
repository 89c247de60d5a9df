"""Where a domain lies on a timeline.

Every pair of equal gaps, of the domain and of the timeline, votes for an offset. The offsets that
win are checked operation by operation, and the best of them against offsets that are known to be
wrong (decoys), so that what only happens to agree is not taken for a match. Drift is part of the
search: clocks that run 100 ppm apart lose a millisecond in ten seconds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys_pp.align.events import Events
from nsys_pp.align.lines import MOST_DRIFT, Line, densest, find_line, fit_line, scale_of
from nsys_pp.align.pairs import SKEW_NS, Reference, pair_events

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_WRONG_NS = 10e9
"""How wrong recorded UTC may be."""

_NEAR_NS = 150_000.0  # how near a first line must come
_DECOYS_NS = (-31.7e6, -13.1e6, -5.3e6, 4.1e6, 11.9e6, 37.3e6)
_CANDIDATES = 8
_MOST_SCATTER_NS = 25_000.0  # of the ends of what is one
_LEAST_EVIDENCE = 5.0
_RIVAL = 0.6
_VOTERS = 64  # of each channel: the operations after its longest gaps
_MOST_VOTES = 200_000
_MOST_OF_LINE = 3_000  # of them, the weightiest, are drawn a line through


def find_offset(own: Events, reference: Reference) -> Line | None:
    """Find the line that makes most operations agree, and far more than chance would.

    Args:
        own: Operations of one domain.
        reference: What they are compared with.

    Returns:
        None where nothing agrees.
    """
    own = own.take(own.gap_place <= _VOTERS)
    reference = reference.take(reference.gap_place <= _VOTERS)
    rows, offsets, weights = _vote(own, reference)
    if not len(rows):
        return _place_single(own, reference)
    found = [_refine(own, reference, line) for line in _candidates(own.end[rows], offsets, weights)]
    found.sort(key=_evidence, reverse=True)
    best = found[0]
    if _evidence(best) < _LEAST_EVIDENCE:
        return _place_single(own, reference)
    if any(_is_rival(best, other) for other in found[1:]):
        return None
    line, count, _ = best
    chance = max(pair_events(own, reference, line.moved(decoy)).count(reference) for decoy in _DECOYS_NS)
    return line if count > 2 * chance else None


_Found = tuple[Line, int, float]  # a line, how many operations agree, and their scatter in ns


def _evidence(found: _Found) -> float:
    """Say how unlikely it is that so many operations agree so well by chance (a logarithm).

    Ranks that do the same at nearly the same time without being one collective (replicas of a
    stage, each with its own tensor-parallel group) scatter by tens of microseconds.
    """
    _, count, scatter = found
    return count * float(np.log(_MOST_SCATTER_NS / min(scatter + 1_000.0, _MOST_SCATTER_NS)))


def _is_rival(best: _Found, other: _Found) -> bool:
    """Say whether another place is about as good: training repeats itself, step by step."""
    apart = abs(other[0].at(np.array([best[0].center_ns]))[0] - best[0].offset_ns)
    return bool(apart > 4 * SKEW_NS and _evidence(other) > _RIVAL * _evidence(best))


def _vote(own: Events, reference: Reference) -> tuple[Int64s, Floats, Floats]:
    """Let pairs of equal gaps vote; an operation's votes weigh 1 together, so rare gaps tell most.

    Returns:
        Rows of the domain, offsets in ns, weights.
    """
    order = np.lexsort((reference.gap_before, reference.key))
    known = reference.take(order[~np.isnan(reference.gap_before[order])])
    low, high = np.zeros(len(own), dtype=np.int64), np.zeros(len(own), dtype=np.int64)
    tolerance = 2 * SKEW_NS + MOST_DRIFT * np.nan_to_num(own.gap_before)
    for key in np.unique(own.key).tolist():
        first, stop = known.of_key(key)
        chosen = (own.key == key) & ~np.isnan(own.gap_before)
        gaps = known.gap_before[first:stop]
        low[chosen] = first + np.searchsorted(gaps, (own.gap_before - tolerance)[chosen])
        high[chosen] = first + np.searchsorted(gaps, (own.gap_before + tolerance)[chosen], side="right")
    counts = high - low
    rarest = np.argsort(counts, kind="stable")
    kept = rarest[np.cumsum(counts[rarest]) <= _MOST_VOTES]
    rows = np.repeat(kept, counts[kept])
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts[kept]) - counts[kept], counts[kept])
    offsets = known.times[low[rows] + within] - own.end[rows]
    near = np.abs(offsets) <= MOST_WRONG_NS
    rows, offsets = rows[near], offsets[near]
    return rows, offsets, 1 / np.bincount(rows, minlength=1)[rows] if len(rows) else offsets


def _candidates(times: Floats, offsets: Floats, weights: Floats) -> list[Line]:
    """Find the offsets with most votes, and lines through the votes there."""
    width = 4 * SKEW_NS + MOST_DRIFT * float(np.ptp(times))
    order = np.argsort(offsets, kind="stable")
    times, offsets, weights = times[order], offsets[order], weights[order]
    lines: list[Line] = []
    while len(lines) < _CANDIDATES and len(offsets):
        first, stop = densest(offsets, width, weights)
        inside = first + np.argsort(-weights[first:stop], kind="stable")[:_MOST_OF_LINE]
        lines.append(find_line(times[inside], offsets[inside], width=4 * SKEW_NS))
        outside = np.r_[0:first, stop : len(offsets)]
        times, offsets, weights = times[outside], offsets[outside], weights[outside]
    return lines


def _refine(own: Events, reference: Reference, line: Line) -> _Found:
    """Fit the line to the operations themselves; return it, how many agree, and how well."""
    pairs = pair_events(own, reference, line, tolerance_ns=_NEAR_NS)
    for _ in range(2):
        if not len(pairs.own):
            return line, 0, 0.0
        times = own.end[pairs.own]
        line = fit_line(times, reference.times[pairs.reference] - times, line, floor_ns=2_000.0)
        pairs = pair_events(own, reference, line)
    times = own.end[pairs.own]
    residuals = reference.times[pairs.reference] - times - line.at(times)
    return line, pairs.count(reference), scale_of(residuals)


def _place_single(own: Events, reference: Reference) -> Line | None:
    """Place by operations that have no neighbours: only where each can be just one other."""
    offsets = []
    for key in np.unique(own.key).tolist():
        mine = own.end[own.key == key]
        first, stop = reference.of_key(key)
        instances, places = np.unique(reference.instances[first:stop], return_index=True)
        if len(mine) == 1 and len(instances) == 1:
            offsets.append(float(reference.times[first + places[0]] - mine[0]))
    if not offsets or np.ptp(offsets) > SKEW_NS or abs(offsets[0]) > MOST_WRONG_NS:
        return None
    return Line(offset_ns=float(np.median(offsets)), center_ns=float(np.median(own.end)))
