"""Candidates for the correction of a domain onto a timeline, each with its evidence.

Every pair of operations that may be one votes for an offset. Lines are fitted through the offsets with most votes,
then to the operations themselves (`nsys_pp.alignment.pairs`). Training repeats itself, so several offsets (a micro-batch
or a step apart) can explain nearly as much: all of them are returned. Drift is part of the search: clocks that run
100 ppm apart lose a millisecond in ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.evidence import Start, pair_by_line, weigh_start
from nsys_pp.alignment.lines import Line, fit_line
from nsys_pp.alignment.near import WEIGHING, Comparison, prepare
from nsys_pp.alignment.pairs import SCATTERS_NS, Pairs
from nsys_pp.alignment.reference import Reference
from nsys_pp.alignment.votes import (
    CANDIDATES,
    FLOOR_NS,
    WINDOWS,
    fit_votes,
    list_agreeing,
    list_expected,
    list_windows,
    vote,
)
from nsys_pp.arrays.members import list_members, mark_members
from nsys_pp.frames.clock import SKEW_NS

_MAX_DENSE = 5  # lines through most votes of collectives, and of messages, that are fitted to the operations
_MAX_SHARP = 3  # the same, of lines through votes that agree
_MAX_EXPECTED = 3  # the same, of lines near the expected offset
_SAME_NS = 2 * SKEW_NS  # candidates this close are one


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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
    events: Events,
    reference: Reference,
    center: Line,
    half_width_ns: float,
    scatter_ns: float | None,
    *,
    near_ns: float = 0.0,
    threads: int = 1,
) -> list[Candidate]:
    """Find the lines by which operations of a domain and of a timeline agree.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        center: Line around which to search.
        half_width_ns: Largest distance from it.
        scatter_ns: Scatter of the ends of one operation in this run; None: not known yet.
        near_ns: Distance from `center` within which a candidate is looked for by the operations there alone, if another one has most evidence:
            operations in lockstep may have more votes. 0: none is.
        threads: Number of threads that compare, if there is much to compare.

    Returns:
        Candidates with evidence, the one with most first, no two at the same offset.
    """
    reference = reference.keep_keys(events.key)
    is_known = mark_members(events.key, list_members(reference.key))
    events = events if is_known.all() else events.select(is_known)
    if not len(events):
        return []
    comparisons = prepare(events, reference).share(threads)
    starts: list[tuple[Start, int]] = []  # each with the number of lines that it was chosen from
    for is_message in (False, True):  # a few collectives are stronger evidence than many messages
        votes = vote(events, events.is_message == is_message, reference, center, half_width_ns)
        if votes is not None:
            windows = list_windows(votes.halves)
            dense = windows[:CANDIDATES]
            for chosen, count, tried in (
                (dense, _MAX_DENSE, 1),
                (list_agreeing(votes, windows), _MAX_SHARP, WINDOWS // CANDIDATES),
                (list_expected(votes, center, dense), _MAX_EXPECTED, 1),
            ):
                fitted = [fit_votes(votes, window) for window in chosen]
                starts += [(start, tried) for start in _keep_best(comparisons, fitted, count)]
    tested = _TestedLines()
    ranked = _rank_lines(comparisons, tested, starts, scatter_ns)
    if near_ns and not (ranked and ranked[0].line.distance_ns(center) <= near_ns):
        start = weigh_start(comparisons[0], center, within_ns=near_ns)
        near = _rank_lines(comparisons, tested, [(start, 1)], scatter_ns)
        near = [candidate for candidate in near if candidate.line.distance_ns(center) <= near_ns]
        ranked = _keep_apart([*ranked, *near], near_ns)
    return ranked


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


def _map(
    function: Callable[[Comparison, _Item], _Result],
    comparisons: Sequence[Comparison],
    items: Sequence[_Item],
) -> list[_Result]:
    """Return the result of a function for each item, with a comparison for each thread; most of its work does not hold the interpreter's lock."""
    count = len(comparisons)

    def work(number: int) -> list[_Result]:
        return [function(comparisons[number], item) for item in items[number::count]]

    if count < 2 or len(items) < 2:
        return [function(comparisons[0], item) for item in items]
    with ThreadPoolExecutor(count - 1) as pool:
        others = [pool.submit(work, number) for number in range(1, count)]
        parts = [work(0), *(other.result() for other in others)]
    return [parts[number % count][number // count] for number in range(len(items))]


class _TestedLines:
    """Lines with the operations that they pair, found once for each line and scatter: fits from several starts often end in one line."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Line, float], Pairs] = {}

    def pair(self, comparison: Comparison, line: Line, scatter_ns: float) -> Pairs:
        """Return the pairs of operations within `SKEW_NS` of a line."""
        if (line, scatter_ns) not in self._pairs:
            self._pairs[line, scatter_ns] = pair_by_line(comparison, line, (scatter_ns,))
        return self._pairs[line, scatter_ns]


def _rank_lines(
    comparisons: Sequence[Comparison],
    tested: _TestedLines,
    starts: list[tuple[Start, int]],
    scatter_ns: float | None,
) -> list[Candidate]:
    """Fit lines to the operations near them, and rank them by evidence; lines without evidence are dropped.

    Args:
        comparisons: Events and operations, for each thread.
        tested: Lines that were tested for them.
        starts: Each with the number of lines that it was chosen from, relative to the others: the best of many has some evidence by
            chance.
        scatter_ns: As for `find_candidates`.
    """
    refined = _map(
        lambda comparison, start: _refine(tested, comparison, start, scatter_ns),
        comparisons,
        [start for start, _ in starts],
    )
    fitted = [(line, tried) for (_, tried), lines in zip(starts, refined, strict=True) for line in lines]
    lines = [line for line, _ in fitted]
    scatters = (scatter_ns,) if scatter_ns is not None else _expect_scatter(tested, comparisons[0], lines)

    def weigh(comparison: Comparison, line: Line) -> Pairs:
        pairs = (tested.pair(comparison, line, scatter) for scatter in scatters)
        return max(pairs, key=lambda pairs: pairs.evidence)

    weighed = _map(weigh, comparisons, lines)
    if scatter_ns is None and weighed:
        best_ns = max(weighed, key=lambda pairs: pairs.evidence).sharpest_ns
        if np.isfinite(best_ns) and widen_scatter(best_ns) > max(scatters):
            # a line with less evidence has the sharpest channel, by chance: judged by it, ends that scatter more would hardly count
            scatters = (widen_scatter(best_ns),)
            weighed = _map(weigh, comparisons, lines)
    candidates = [
        Candidate(
            line=line,
            evidence=pairs.evidence - float(np.log(tried)),
            exchange_evidence=pairs.exchange_evidence,
            sharpest_ns=pairs.sharpest_ns,
        )
        for (line, tried), pairs in zip(fitted, weighed, strict=True)
    ]
    return _keep_apart(candidates, _SAME_NS)


def _keep_apart(candidates: Sequence[Candidate], apart_ns: float) -> list[Candidate]:
    """Rank candidates by evidence; one without evidence, or closer than this to one with more, is dropped."""
    ranked: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.evidence):
        if candidate.evidence > 0 and all(
            candidate.line.distance_ns(other.line) > apart_ns for other in ranked
        ):
            ranked.append(candidate)
    return ranked


def _keep_best(comparisons: Sequence[Comparison], lines: list[Line], count: int) -> list[Start]:
    """Keep the lines with most evidence as they are."""
    starts = _map(weigh_start, comparisons, lines)
    if len(starts) <= count:
        return starts
    kept = np.argsort([-start.evidence for start in starts], kind="stable")[:count]
    return [starts[number] for number in kept.tolist()]


def _expect_scatter(tested: _TestedLines, comparison: Comparison, lines: list[Line]) -> tuple[float, ...]:
    """Return the scatters to expect first: collectives of one run scatter alike, so the sharpest channel shows it."""
    sharpest_ns = min(
        (tested.pair(comparison, line, SCATTERS_NS[1]).sharpest_ns for line in lines), default=np.inf
    )
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


def _refine(
    tested: _TestedLines, comparison: Comparison, start: Start, scatter_ns: float | None
) -> list[Line]:
    """Fit lines to the operations near a line, one to each of the sharpest pairs of channels.

    Unrelated channels in lockstep have many operations near the line, and would outweigh the few that are shared in a fit of
    all.
    """
    events, reference = comparison.events, comparison.reference
    line = start.line
    lines: list[Line] = []
    for rows, residual_ns in start.sharpest:
        times = events.end[rows]
        fitted = fit_line(times, residual_ns + line.at(times), line, floor_ns=FLOOR_NS)
        pairs = tested.pair(comparison, fitted, WEIGHING.first_scatter if scatter_ns is None else scatter_ns)
        if len(pairs.event_row):
            times = events.end[pairs.event_row]
            values = reference.times[pairs.reference_row] - times
            fitted = fit_line(times, values, fitted, floor_ns=FLOOR_NS, noise=pairs.scatter_ns)
        if all(fitted.distance_ns(other) > FLOOR_NS for other in lines):
            lines.append(fitted)
    return lines
