"""Candidates for the correction of a domain onto a timeline, each with its evidence.

Every pair of operations that may be one votes for an offset. Lines are fitted through the offsets with most votes,
then to the operations themselves (`nsys_pp.alignment.pairs`). Training repeats itself, so several offsets (a micro-batch
or a step apart) can explain nearly as much: all of them are returned. Drift is part of the search: clocks that run
100 ppm apart lose a millisecond in ten seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.evidence import Start, pair_by_line, weigh_start
from nsys_pp.alignment.lines import MAX_DRIFT, Line, find_line, fit_line
from nsys_pp.alignment.near import WEIGHING, Comparison, prepare
from nsys_pp.alignment.pairs import SCATTERS_NS, TOGETHER_NS, Pairs
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.order import sort_stable
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

_FLOOR_NS = 2_000.0  # of the scatter in a fit
_WINDOWS = 64  # of offsets with most votes
_CANDIDATES = 10
_MAX_DENSE = 5  # lines through most votes of collectives, and of messages, that are fitted to the operations
_MAX_SHARP = 3  # the same, of lines through votes that agree
_MAX_EXPECTED = 3  # the same, of lines near the expected offset
_EXPECTED_NS = 1e6  # from the expected offset
_MAX_VOTERS = 64  # of each channel: the operations after its longest gaps
_MAX_VOTES = 200_000
_MAX_VOTES_OF_LINE = 3_000  # the votes with most weight, through which a line is fitted
_SAME_NS = 2 * SKEW_NS  # candidates this close are one


class Candidate(Struct, frozen=True, kw_only=True):
    """A candidate correction of a domain onto a timeline.

    Attributes:
        line: The correction.
        evidence: Logarithm of the likelihood ratio between this line and sharing nothing.
        exchange_evidence: The same, of messages that are not known to be sends or receives.
        sharpest_ns: Least scatter of its channels, infinite where too few operations show it.
    """

    line: Line
    evidence: float
    exchange_evidence: float
    sharpest_ns: float


def find_candidates(
    events: Events, reference: Reference, center: Line, half_width_ns: float, scatter_ns: float | None
) -> list[Candidate]:
    """Find the lines by which operations of a domain and of a timeline agree.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        center: Line around which to search.
        half_width_ns: Largest distance from it.
        scatter_ns: Scatter of the ends of one operation in this run; None: not known yet.

    Returns:
        Candidates with evidence, the one with most first, no two at the same offset.
    """
    reference = reference.select(np.isin(reference.key, np.unique(events.key)))
    events = events.select(np.isin(events.key, np.unique(reference.key)))
    if not len(events):
        return []
    comparison = prepare(events, reference)
    starts: list[tuple[Start, int]] = []  # each with the number of lines that it was chosen from
    for is_message in (False, True):  # a few collectives are stronger evidence than many messages
        votes = _vote(events.select(events.is_message == is_message), reference, center, half_width_ns)
        if len(votes.offset_ns):
            windows = _list_windows(votes)
            dense = windows[:_CANDIDATES]
            for chosen, count, tried in (
                (dense, _MAX_DENSE, 1),
                (_list_agreeing(votes, windows), _MAX_SHARP, _WINDOWS // _CANDIDATES),
                (_list_expected(votes, center, dense), _MAX_EXPECTED, 1),
            ):
                fitted = [_fit_votes(votes, window) for window in chosen]
                starts += [(start, tried) for start in _keep_best(comparison, fitted, count)]
    return _rank_lines(comparison, starts, scatter_ns)


def weigh_lines(
    events: Events, reference: Reference, lines: Sequence[Line], scatter_ns: float | None
) -> list[float]:
    """Return the evidence of each line between a domain and a timeline, as of a candidate; the lines stay as they are.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        lines: The lines.
        scatter_ns: Scatter of the ends of one operation in this run; None: not known.
    """
    comparison = prepare(events, reference)
    scatters = (scatter_ns,) if scatter_ns is not None else SCATTERS_NS
    return [pair_by_line(comparison, line, scatters).evidence for line in lines]


class _TestedLines:
    """Lines with the operations that they pair, found once for each line and scatter: fits from several starts often end in one line."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self._pairs: dict[tuple[Line, float], Pairs] = {}

    def pair(self, line: Line, scatter_ns: float) -> Pairs:
        """Return the pairs of operations within `SKEW_NS` of a line."""
        if (line, scatter_ns) not in self._pairs:
            self._pairs[line, scatter_ns] = pair_by_line(self.comparison, line, (scatter_ns,))
        return self._pairs[line, scatter_ns]


def _rank_lines(
    comparison: Comparison, starts: list[tuple[Start, int]], scatter_ns: float | None
) -> list[Candidate]:
    """Fit lines to the operations near them, and rank them by evidence; lines without evidence are dropped.

    Args:
        comparison: Events and operations.
        starts: Each with the number of lines that it was chosen from, relative to the others: the best of many has some evidence by
            chance.
        scatter_ns: As for `find_candidates`.
    """
    tested = _TestedLines(comparison)
    fitted = [(line, tried) for start, tried in starts for line in _refine(tested, start, scatter_ns)]
    scatters = (
        (scatter_ns,) if scatter_ns is not None else _expect_scatter(tested, [line for line, _ in fitted])
    )
    candidates = []
    for line, tried in fitted:
        pairs = max((tested.pair(line, scatter) for scatter in scatters), key=lambda pairs: pairs.evidence)
        candidates.append(
            Candidate(
                line=line,
                evidence=pairs.evidence - float(np.log(tried)),
                exchange_evidence=pairs.exchange_evidence,
                sharpest_ns=pairs.sharpest_ns,
            )
        )
    ranked: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.evidence):
        if candidate.evidence > 0 and all(
            candidate.line.distance_ns(other.line) > _SAME_NS for other in ranked
        ):
            ranked.append(candidate)
    return ranked


def _keep_best(comparison: Comparison, lines: list[Line], count: int) -> list[Start]:
    """Keep the lines with most evidence as they are."""
    starts = [weigh_start(comparison, line) for line in lines]
    if len(starts) <= count:
        return starts
    kept = np.argsort([-start.evidence for start in starts], kind="stable")[:count]
    return [starts[number] for number in kept.tolist()]


def _expect_scatter(tested: _TestedLines, lines: list[Line]) -> tuple[float, ...]:
    """Return the scatters to expect: collectives of one run scatter alike, so the sharpest channel shows it."""
    sharpest_ns = min((tested.pair(line, SCATTERS_NS[1]).sharpest_ns for line in lines), default=np.inf)
    if np.isinf(sharpest_ns):
        return SCATTERS_NS
    return (widen_scatter(sharpest_ns),)


def widen_scatter(sharpest_ns: float) -> float:
    """Return the scatter to expect of all collectives, from the scatter of the sharpest channel.

    >>> widen_scatter(100.0), widen_scatter(5_000.0), widen_scatter(1e6)
    (1500.0, 8000.0, 30000.0)
    """
    return float(np.clip(1.5 * sharpest_ns + 500.0, SCATTERS_NS[0], SCATTERS_NS[-1]))


def find_single(events: Events, reference: Reference) -> Line | None:
    """Find a constant offset by keys with a single operation on both sides; None without any, or where they disagree."""
    offsets = []
    for key in np.unique(events.key).tolist():
        ends = events.end[events.key == key]
        first, stop = reference.of_key(key)
        instances, rows = np.unique(reference.instances[first:stop], return_index=True)
        if len(ends) == 1 and len(instances) == 1:
            offsets.append(float(reference.times[first + rows[0]] - ends[0]))
    if not offsets or np.ptp(offsets) > SKEW_NS:
        return None
    return Line(offset_ns=float(np.median(offsets)), center_ns=float(np.median(events.end)))


def _refine(tested: _TestedLines, start: Start, scatter_ns: float | None) -> list[Line]:
    """Fit lines to the operations near a line, one to each of the sharpest pairs of channels.

    Unrelated channels in lockstep have many operations near the line, and would outweigh the few that are shared in a fit of
    all.
    """
    events, reference = tested.comparison.events, tested.comparison.reference
    line = start.line
    lines: list[Line] = []
    for rows, residual_ns in start.sharpest:
        times = events.end[rows]
        fitted = fit_line(times, residual_ns + line.at(times), line, floor_ns=_FLOOR_NS)
        pairs = tested.pair(fitted, WEIGHING.first_scatter if scatter_ns is None else scatter_ns)
        if len(pairs.event_row):
            times = events.end[pairs.event_row]
            values = reference.times[pairs.reference_row] - times
            fitted = fit_line(times, values, fitted, floor_ns=_FLOOR_NS, noise=pairs.scatter_ns)
        if all(fitted.distance_ns(other) > _FLOOR_NS for other in lines):
            lines.append(fitted)
    return lines


class _Votes(Struct, frozen=True, kw_only=True):
    """Votes of pairs of operations for offsets, by offset.

    Attributes:
        time: End of the event, ns.
        offset_ns: End of the operation minus end of the event.
        weight: The votes of an event weigh 1 in total, in favour of rare pairs.
        link: Number of the pair of channels.
    """

    time: Floats
    offset_ns: Floats
    weight: Floats
    link: Int64s


def _vote(events: Events, reference: Reference, center: Line, half_width_ns: float) -> _Votes:
    """Collect the votes of pairs within the width.

    Where these are too many, only pairs with an equal gap before vote.
    """
    voters = events.select(events.gap_rank <= _MAX_VOTERS)
    expected = voters.end + center.at(voters.end)
    low, high = _find_windows(
        voters.key, expected - half_width_ns, expected + half_width_ns, reference, reference.times
    )
    if (high - low).sum() > _MAX_VOTES:
        order = np.lexsort((reference.gap_before, reference.key))
        reference = reference.select(order[~np.isnan(reference.gap_before[order])])
        with_gap = ~np.isnan(voters.gap_before)
        voters, expected = voters.select(with_gap), expected[with_gap]
        tolerance = 2 * SKEW_NS + MAX_DRIFT * voters.gap_before
        low, high = _find_windows(
            voters.key, voters.gap_before - tolerance, voters.gap_before + tolerance,
            reference, reference.gap_before,
        )  # fmt: skip
    counts = high - low
    rarest = np.argsort(counts, kind="stable")
    kept = rarest[np.cumsum(counts[rarest]) <= _MAX_VOTES]
    rows = np.repeat(kept, counts[kept])
    others = expand_windows(low[kept], high[kept])
    offsets = reference.times[others] - voters.end[rows]
    is_inside = np.abs(reference.times[others] - expected[rows]) <= half_width_ns
    rows, others, offsets = rows[is_inside], others[is_inside], offsets[is_inside]
    order = sort_stable(offsets)
    rows, others = rows[order], others[order]
    link = voters.channel[rows] * (int(reference.channels.max(initial=0)) + 1) + reference.channels[others]
    return _Votes(
        time=voters.end[rows],
        offset_ns=offsets[order],
        weight=1 / np.bincount(rows, minlength=len(voters))[rows],
        link=find_distinct(link)[1],
    )


def _find_windows(
    keys: Int64s, low_values: Floats, high_values: Floats, reference: Reference, values: Floats
) -> tuple[Int64s, Int64s]:
    """Find the rows of the reference with the same key and a value in each window; `values` ascend in each key."""
    low, high = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
    for key in np.unique(keys).tolist():
        first, stop = reference.of_key(key)
        chosen = keys == key
        low[chosen] = first + np.searchsorted(values[first:stop], low_values[chosen])
        high[chosen] = first + np.searchsorted(values[first:stop], high_values[chosen], side="right")
    return low, high


def _list_windows(votes: _Votes) -> list[Int64s]:
    """List the windows of offsets with most votes, the best first: the votes of each."""
    width = 4 * SKEW_NS + MAX_DRIFT * float(np.ptp(votes.time))
    half = np.floor((votes.offset_ns - votes.offset_ns[0]) / (width / 2)).astype(np.int64)
    halves, number = np.unique(half, return_inverse=True)
    sums = np.bincount(number, votes.weight)
    is_followed = np.diff(halves, append=halves[-1:]) == 1
    weight = sums + np.where(is_followed, np.append(sums[1:], 0.0), 0.0)
    bounds = np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))
    windows: list[Int64s] = []
    taken: set[int] = set()
    for first in np.argsort(-weight, kind="stable").tolist():
        if len(windows) == _WINDOWS:
            break
        if not taken & {int(halves[first]), int(halves[first]) + 1}:
            taken |= {int(halves[first]), int(halves[first]) + 1}
            windows.append(np.arange(bounds[first], bounds[first + 1 + int(is_followed[first])]))
    return windows


def _list_agreeing(votes: _Votes, windows: list[Int64s]) -> list[Int64s]:
    """List the windows whose votes agree most from one to the next, except the first `_CANDIDATES`.

    Unrelated operations of a training repeat themselves, and agree to some tens of microseconds by many offsets; the offset of
    few shared ones among them has fewer votes, that agree to microseconds.
    """
    agreement = np.array([_measure_agreement(votes, window) for window in windows])
    best = np.argsort(-agreement, kind="stable")[:_CANDIDATES].tolist()
    return [windows[one] for one in best if one >= _CANDIDATES and agreement[one] > 0]


def _list_expected(votes: _Votes, center: Line, dense: list[Int64s]) -> list[Int64s]:
    """List the windows with most votes near the expected offset, where most clocks are, except those in `dense`.

    Where few operations are shared, unrelated ones that repeat have more votes elsewhere.
    """
    distance_ns = np.abs(votes.offset_ns - center.at(votes.time))
    near = np.flatnonzero(distance_ns <= _EXPECTED_NS)
    if not len(near):
        return []
    listed = {(int(window[0]), int(window[-1])) for window in dense}
    windows = [near[window] for window in _list_windows(select_rows(votes, near))]
    return [window for window in windows if (int(window[0]), int(window[-1])) not in listed]


def _measure_agreement(votes: _Votes, window: Int64s) -> float:
    """Measure how much the votes of a window agree from one to the next in time, between two channels."""
    order = window[np.lexsort((votes.time[window], votes.link[window]))]
    offset_ns, link = votes.offset_ns[order], votes.link[order]
    apart_ns = np.abs(offset_ns[1:] - offset_ns[:-1])[link[1:] == link[:-1]]
    closeness = np.log(TOGETHER_NS / (apart_ns + _FLOOR_NS))
    return float(np.maximum(closeness, 0.0).sum())


def _fit_votes(votes: _Votes, window: Int64s) -> Line:
    """Fit a line through the votes of a window."""
    kept = window
    if len(window) > _MAX_VOTES_OF_LINE:
        kept = window[np.argsort(-votes.weight[window], kind="stable")[:_MAX_VOTES_OF_LINE]]
    return find_line(votes.time[kept], votes.offset_ns[kept], width=4 * SKEW_NS)
