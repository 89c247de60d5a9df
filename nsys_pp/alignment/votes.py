"""The correction of a domain onto a timeline, found by voting.

Every pair of equal gaps, one of the domain and one of the timeline, votes for an offset. The offsets with most
votes are checked operation by operation, and the best one is compared with wrong offsets (decoys), so that
coincidences are not accepted as matches. Drift is part of the search: clocks that run 100 ppm apart lose a
millisecond in ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import MAX_DRIFT, Line, find_densest_window, find_line, fit_line, quantile_sigma
from nsys_pp.alignment.pairs import Reference, keep_consensus, pair_events
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

MAX_UTC_ERROR_NS = 10e9
"""Largest error of recorded UTC."""

MAX_SESSION_DIFFERENCE_NS = 2e6
"""Largest difference of UTC between two sessions of one machine: about 0.1 ms, with a margin for corrections."""

_NEAR_NS = 150_000.0  # tolerance of pairs by a first line
_DECOYS_NS = (-31.7e6, -13.1e6, -5.3e6, 4.1e6, 11.9e6, 37.3e6)
_CANDIDATES = 8
_MAX_SCATTER_NS = 20_000.0  # of the ends of one operation
_MIN_EVIDENCE = 8.0
_CERTAIN_EVIDENCE = 40.0
_RIVAL_FRACTION = 0.6
_MAX_VOTERS = 64  # of each channel: the operations after its longest gaps
_MAX_VOTES = 200_000
_MAX_VOTES_OF_LINE = 3_000  # the votes with most weight, through which a line is fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate correction of a domain onto a timeline."""

    line: Line
    evidence: float  # logarithm: grows with the number of agreeing operations and the precision


def find_offset(
    events: Events,
    reference: Reference,
    messages: tuple[Events, Reference] | None = None,
    machine_line: Line | None = None,
) -> Candidate | None:
    """Find the line with most agreeing operations, far more than by chance.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        messages: Messages and their reference; they add evidence to a line but propose none.
        machine_line: Correction of another session of the machine, which reads the same UTC.

    Returns:
        None where no operations agree, or where two lines have about the same evidence.
    """
    events, reference = _keep_voters(events, reference)
    messages = _keep_voters(*messages) if messages else None
    rows, offsets, weights = _vote(events, reference)
    if not len(rows):
        return _find_by_single_operations(events, reference)
    lines = _candidate_lines(events.end[rows], offsets, weights)
    candidates = [_refine(events, reference, line, messages) for line in lines]
    candidates.sort(key=lambda candidate: candidate.evidence, reverse=True)
    best = candidates[0]
    if machine_line is not None and not _is_near(best, machine_line) and best.evidence < _CERTAIN_EVIDENCE:
        return None
    if best.evidence < _MIN_EVIDENCE:
        return _find_by_single_operations(events, reference)
    if any(_is_rival(best, other) for other in candidates[1:]):
        return None
    count = pair_events(events, reference, best.line).count(reference)
    decoys = (pair_events(events, reference, best.line.shifted(decoy)) for decoy in _DECOYS_NS)
    return best if count > 2 * max(pairs.count(reference) for pairs in decoys) else None


def _is_near(candidate: Candidate, machine_line: Line) -> bool:
    return candidate.line.distance_ns(machine_line) <= MAX_SESSION_DIFFERENCE_NS


def _keep_voters(events: Events, reference: Reference) -> tuple[Events, Reference]:
    return events.select(events.gap_rank <= _MAX_VOTERS), reference.select(reference.gap_rank <= _MAX_VOTERS)


def _measure_evidence(events: Events, reference: Reference, line: Line) -> float:
    """Measure the evidence of a line: number and precision of the operations that agree."""
    pairs = keep_consensus(pair_events(events, reference, line), events, reference, line)
    times = events.end[pairs.event_row]
    spread = quantile_sigma(reference.times[pairs.reference_row] - times - line.at(times))
    # Independent ranks with the same operations scatter as well, but not within one communicator.
    limit = SKEW_NS if events.has_communicator[pairs.event_row].all() else _MAX_SCATTER_NS
    return pairs.count(reference) * float(np.log(limit / min(spread + 1_000.0, limit)))


def _is_rival(best: Candidate, other: Candidate) -> bool:
    """Whether another line has similar evidence: training repeats itself, step by step."""
    return (
        best.line.distance_ns(other.line) > 4 * SKEW_NS and other.evidence > _RIVAL_FRACTION * best.evidence
    )


def _vote(events: Events, reference: Reference) -> tuple[Int64s, Floats, Floats]:
    """Collect the votes of pairs of equal gaps; the votes of an event weigh 1 in total, in favour of rare gaps.

    Returns:
        Event rows, offsets in ns, weights.
    """
    order = np.lexsort((reference.gap_before, reference.key))
    with_gap = reference.select(order[~np.isnan(reference.gap_before[order])])
    low, high = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    tolerance = 2 * SKEW_NS + MAX_DRIFT * np.nan_to_num(events.gap_before)
    for key in np.unique(events.key).tolist():
        first, stop = with_gap.of_key(key)
        chosen = (events.key == key) & ~np.isnan(events.gap_before)
        gaps = with_gap.gap_before[first:stop]
        low[chosen] = first + np.searchsorted(gaps, (events.gap_before - tolerance)[chosen])
        high[chosen] = first + np.searchsorted(gaps, (events.gap_before + tolerance)[chosen], side="right")
    counts = high - low
    rarest = np.argsort(counts, kind="stable")
    kept = rarest[np.cumsum(counts[rarest]) <= _MAX_VOTES]
    rows = np.repeat(kept, counts[kept])
    offsets = with_gap.times[expand_windows(low[kept], high[kept])] - events.end[rows]
    is_possible = np.abs(offsets) <= MAX_UTC_ERROR_NS
    rows, offsets = rows[is_possible], offsets[is_possible]
    return rows, offsets, 1 / np.bincount(rows, minlength=1)[rows] if len(rows) else offsets


def _candidate_lines(times: Floats, offsets: Floats, weights: Floats) -> list[Line]:
    """Find the offsets with most votes, and fit lines through those votes."""
    width = 4 * SKEW_NS + MAX_DRIFT * float(np.ptp(times))
    order = np.argsort(offsets, kind="stable")
    times, offsets, weights = times[order], offsets[order], weights[order]
    lines: list[Line] = []
    while len(lines) < _CANDIDATES and len(offsets):
        first, stop = find_densest_window(offsets, width, weights)
        inside = first + np.argsort(-weights[first:stop], kind="stable")[:_MAX_VOTES_OF_LINE]
        lines.append(find_line(times[inside], offsets[inside], width=4 * SKEW_NS))
        outside = np.r_[0:first, stop : len(offsets)]
        times, offsets, weights = times[outside], offsets[outside], weights[outside]
    return lines


def _refine(
    events: Events, reference: Reference, line: Line, messages: tuple[Events, Reference] | None
) -> Candidate:
    """Fit a line to the operations themselves and measure its evidence."""
    pairs = pair_events(events, reference, line, tolerance_ns=_NEAR_NS)
    for _ in range(3):
        pairs = keep_consensus(pairs, events, reference, line)
        if not len(pairs.event_row):
            return Candidate(line=line, evidence=0.0)
        times = events.end[pairs.event_row]
        line = fit_line(times, reference.times[pairs.reference_row] - times, line, floor_ns=2_000.0)
        pairs = pair_events(events, reference, line)
    evidence = _measure_evidence(events, reference, line)
    if evidence and messages:
        evidence += _measure_evidence(*messages, line)
    return Candidate(line=line, evidence=evidence)


def _find_by_single_operations(events: Events, reference: Reference) -> Candidate | None:
    """Find a constant offset by keys with a single operation on both sides."""
    offsets = []
    for key in np.unique(events.key).tolist():
        ends = events.end[events.key == key]
        first, stop = reference.of_key(key)
        instances, first_rows = np.unique(reference.instances[first:stop], return_index=True)
        if len(ends) == 1 and len(instances) == 1:
            offsets.append(float(reference.times[first + first_rows[0]] - ends[0]))
    if not offsets or np.ptp(offsets) > SKEW_NS or abs(offsets[0]) > MAX_UTC_ERROR_NS:
        return None
    line = Line(offset_ns=float(np.median(offsets)), center_ns=float(np.median(events.end)))
    return Candidate(line=line, evidence=0.0)
