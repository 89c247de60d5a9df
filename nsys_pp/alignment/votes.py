"""Where a domain lies on a timeline.

Every pair of equal gaps, of the domain and of the timeline, votes for an offset. The offsets that
win are checked operation by operation, and the best of them against offsets that are known to be
wrong (decoys), so that what only happens to agree is not taken for a match. Drift is part of the
search: clocks that run 100 ppm apart lose a millisecond in ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import MOST_DRIFT, Line, densest, find_line, fit_line, spread_of
from nsys_pp.alignment.pairs import SKEW_NS, Reference, keep_consensus, pair_events
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s

MOST_WRONG_NS = 10e9
"""How wrong recorded UTC may be."""

SESSIONS_NS = 2e6
"""How far two sessions of one machine may read its UTC apart: about 0.1 ms, and some for its own corrections."""

_NEAR_NS = 150_000.0  # how near a first line must come
_DECOYS_NS = (-31.7e6, -13.1e6, -5.3e6, 4.1e6, 11.9e6, 37.3e6)
_CANDIDATES = 8
_MOST_SCATTER_NS = 20_000.0  # of the ends of what is one
_LEAST_EVIDENCE = 8.0
_BEYOND_DOUBT = 40.0
_RIVAL = 0.6
_VOTERS = 64  # of each channel: the operations after its longest gaps
_MOST_VOTES = 200_000
_MOST_OF_LINE = 3_000  # of them, the weightiest, are drawn a line through


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A place of a domain on a timeline."""

    line: Line
    evidence: float  # how unlikely it is that so much agrees so well by chance (a logarithm)


def find_offset(
    own: Events,
    reference: Reference,
    also: tuple[Events, Reference] | None = None,
    beside: Line | None = None,
) -> Found | None:
    """Find the line that makes most operations agree, and far more than chance would.

    Args:
        own: Operations of one domain.
        reference: What they are compared with.
        also: Operations that find no line, but speak for or against one.
        beside: Where another session of the machine lies: they read one UTC.

    Returns:
        None where nothing agrees, or where two places are about as good.
    """
    own, reference = _most_telling(own, reference)
    also = _most_telling(*also) if also else None
    rows, offsets, weights = _vote(own, reference)
    if not len(rows):
        return _place_single(own, reference)
    lines = _candidates(own.end[rows], offsets, weights)
    found = [_refine(own, reference, line, also) for line in lines]
    found.sort(key=lambda one: one.evidence, reverse=True)
    best = found[0]
    if beside is not None and not _is_near(best, beside) and best.evidence < _BEYOND_DOUBT:
        return None
    if best.evidence < _LEAST_EVIDENCE:
        return _place_single(own, reference)
    if any(_is_rival(best, other) for other in found[1:]):
        return None
    count = pair_events(own, reference, best.line).count(reference)
    decoys = (pair_events(own, reference, best.line.moved(decoy)) for decoy in _DECOYS_NS)
    return best if count > 2 * max(pairs.count(reference) for pairs in decoys) else None


def _is_near(found: Found, beside: Line) -> bool:
    return found.line.apart_ns(beside) <= SESSIONS_NS


def _most_telling(own: Events, reference: Reference) -> tuple[Events, Reference]:
    return own.take(own.gap_place <= _VOTERS), reference.take(reference.gap_place <= _VOTERS)


def _weigh(own: Events, reference: Reference, line: Line) -> float:
    """Say how unlikely it is that so many operations agree so well by chance."""
    pairs = keep_consensus(pair_events(own, reference, line), own, reference, line)
    times = own.end[pairs.own]
    spread = spread_of(reference.times[pairs.reference] - times - line.at(times))
    # ranks that only do the same at nearly the same time scatter as well, but not within a communicator
    most = SKEW_NS if own.is_told[pairs.own].all() else _MOST_SCATTER_NS
    return pairs.count(reference) * float(np.log(most / min(spread + 1_000.0, most)))


def _is_rival(best: Found, other: Found) -> bool:
    """Say whether another place is about as good: training repeats itself, step by step."""
    return best.line.apart_ns(other.line) > 4 * SKEW_NS and other.evidence > _RIVAL * best.evidence


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
    offsets = known.times[expand_windows(low[kept], high[kept])] - own.end[rows]
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


def _refine(own: Events, reference: Reference, line: Line, also: tuple[Events, Reference] | None) -> Found:
    """Fit a line to the operations themselves, and say how much speaks for it."""
    pairs = pair_events(own, reference, line, tolerance_ns=_NEAR_NS)
    for _ in range(3):
        pairs = keep_consensus(pairs, own, reference, line)
        if not len(pairs.own):
            return Found(line=line, evidence=0.0)
        times = own.end[pairs.own]
        line = fit_line(times, reference.times[pairs.reference] - times, line, floor_ns=2_000.0)
        pairs = pair_events(own, reference, line)
    evidence = _weigh(own, reference, line)
    if evidence and also:
        evidence += _weigh(*also, line)
    return Found(line=line, evidence=evidence)


def _place_single(own: Events, reference: Reference) -> Found | None:
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
    line = Line(offset_ns=float(np.median(offsets)), center_ns=float(np.median(own.end)))
    return Found(line=line, evidence=0.0)
