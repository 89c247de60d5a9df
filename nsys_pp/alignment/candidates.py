"""Candidates for the correction of a domain onto a timeline, each with its evidence.

Every pair of operations that may be one votes for an offset. Lines are fitted through the offsets with most votes,
then to the operations themselves (`nsys_pp.alignment.pairs`). Training repeats itself, so several offsets (a micro-batch
or a step apart) can explain nearly as much: all of them are returned. Drift is part of the search: clocks that run
100 ppm apart lose a millisecond in ten seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from nsys_pp.alignment import evidence as evidence_of
from nsys_pp.alignment.events import Events
from nsys_pp.alignment.line_search import LineSearch
from nsys_pp.alignment.lines import Line, list_lines, measure_distances, stack_lines
from nsys_pp.alignment.near import WEIGHING, prepare
from nsys_pp.alignment.pairs import SCATTERS_NS
from nsys_pp.alignment.reference import Reference
from nsys_pp.alignment.votes import (
    CANDIDATES,
    WINDOWS,
    fit_votes,
    list_agreeing,
    list_expected,
    list_windows,
    vote,
)
from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.members import list_members, mark_members
from nsys_pp.arrays.near_lines import LineStarts
from nsys_pp.arrays.threads import open_executor
from nsys_pp.arrays.types import Bools, Floats
from nsys_pp.frames.clock import SKEW_NS

LINES = 64
"""By which the operations of a comparison are looked at, about."""

_MAX_DENSE = 5  # lines through most votes of collectives, and of messages, that are fitted to the operations
_MAX_SHARP = 3  # the same, of lines through votes that agree
_MAX_EXPECTED = 3  # the same, of lines near the expected offset
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
    with open_executor(LINES * len(events) if threads > 1 else 0, threads=threads) as executor:
        search = LineSearch(prepare(events, reference), executor, threads)
        # a few collectives are stronger evidence than many messages
        voters = (events.is_message == is_message for is_message in (False, True))
        found = executor.map(partial(_list_first_lines, events, reference, center, half_width_ns), voters)
        groups = [group for groups in found for group in groups]
        ranked = _rank_lines(search, _keep_best(search, groups), scatter_ns)
        if near_ns and not (ranked and ranked[0].line.distance_ns(center) <= near_ns):
            starts = search.list_starts(stack_lines([center]), within_ns=near_ns)
            near = _rank_lines(search, (starts, np.ones(1)), scatter_ns)
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
    scatters = (scatter_ns,) if scatter_ns is not None else SCATTERS_NS
    weights = evidence_of.weigh_lines(prepare(events, reference), stack_lines(lines), scatters)
    most: list[float] = weights.evidence.max(axis=1).tolist()
    return most


class _FirstLines(Struct, frozen=True, kw_only=True):
    """First lines of one kind.

    Attributes:
        lines: Offset, rate and center of each, in columns.
        count: Number of the best that are fitted to the operations.
        tried: Number of lines that each was chosen from, relative to other kinds: the best of many has some evidence by chance.
    """

    lines: Floats
    count: int
    tried: int


def _list_first_lines(
    events: Events, reference: Reference, center: Line, half_width_ns: float, is_voter: Bools
) -> list[_FirstLines]:
    """List lines through the votes of some events."""
    votes = vote(events, is_voter, reference, center, half_width_ns)
    if votes is None:
        return []
    windows = list_windows(votes.halves)
    dense = windows[:CANDIDATES]
    kinds = (
        (dense, _MAX_DENSE, 1),
        (list_agreeing(votes, windows), _MAX_SHARP, WINDOWS // CANDIDATES),
        (list_expected(votes, center, dense), _MAX_EXPECTED, 1),
    )
    lines = fit_votes(votes, [window for chosen, _, _ in kinds for window in chosen])
    groups, first = [], 0
    for chosen, count, tried in kinds:
        groups.append(_FirstLines(lines=lines[first : first + len(chosen)], count=count, tried=tried))
        first += len(chosen)
    return groups


def _keep_best(search: LineSearch, groups: Sequence[_FirstLines]) -> tuple[LineStarts, Floats]:
    """Keep the lines of each group with most evidence as they are; return their starts, and the number that each was chosen from."""
    lines = np.concatenate([np.zeros((0, 3)), *(group.lines for group in groups)])
    starts = search.list_starts(lines)
    kept, first = [np.zeros(0, dtype=np.int64)], 0
    for group in groups:
        own = np.arange(first, first + len(group.lines))
        if len(own) > group.count:
            own = own[np.argsort(-starts.evidence[own], kind="stable")[: group.count]]
        kept.append(own)
        first += len(group.lines)
    tried = [group.tried for group in groups]
    return starts.select(np.concatenate(kept)), np.repeat(tried, [len(own) for own in kept[1:]])


def _rank_lines(
    search: LineSearch, first: tuple[LineStarts, Floats], scatter_ns: float | None
) -> list[Candidate]:
    """Fit lines to the operations near first lines, and rank them by evidence; lines without evidence are dropped.

    Args:
        search: Search of the events and operations.
        first: Starts of the first lines, and the number of lines that each was chosen from.
        scatter_ns: As for `find_candidates`.
    """
    starts, tried = first
    fitted = search.fit_starts(starts, WEIGHING.first_scatter if scatter_ns is None else scatter_ns)
    lines = np.concatenate([np.zeros((0, 3)), *fitted])
    scatters = (scatter_ns,) if scatter_ns is not None else _expect_scatter(search, lines)
    weights = _choose_scatter(search.weigh_lines(lines, scatters))
    if scatter_ns is None and len(lines):
        best_ns = float(weights[weights[:, 0].argmax(), 2])
        if np.isfinite(best_ns) and widen_scatter(best_ns) > max(scatters):
            # a line with less evidence has the sharpest channel, by chance: judged by it, ends that scatter more would hardly count
            weights = _choose_scatter(search.weigh_lines(lines, (widen_scatter(best_ns),)))
    evidence, exchange, sharpest = weights.T
    evidence = evidence - np.log(np.repeat(tried, [len(of_start) for of_start in fitted]))
    rows = np.flatnonzero(evidence > 0)
    candidates = [
        Candidate(line=line, evidence=own, exchange_evidence=of_exchange, sharpest_ns=sharpest_ns)
        for line, own, of_exchange, sharpest_ns in zip(
            list_lines(lines[rows]),
            *(values[rows].tolist() for values in (evidence, exchange, sharpest)),
            strict=True,
        )
    ]
    return _keep_apart(candidates, _SAME_NS)


def _choose_scatter(weights: Floats) -> Floats:
    """Choose the weights of each line by the scatter with most evidence."""
    best: Floats = weights[weights[:, :, 0].argmax(axis=0), np.arange(weights.shape[1])]
    return best


def _keep_apart(candidates: Sequence[Candidate], apart_ns: float) -> list[Candidate]:
    """Rank candidates by evidence, each above 0; one closer than this to one with more is dropped."""
    remaining = sorted(candidates, key=lambda candidate: -candidate.evidence)
    lines = stack_lines([candidate.line for candidate in remaining])
    ranked: list[Candidate] = []
    is_apart = np.ones(len(remaining), dtype=np.bool_)
    for number, candidate in enumerate(remaining):
        if is_apart[number]:
            ranked.append(candidate)
            is_apart &= measure_distances(lines, lines[number]) > apart_ns
    return ranked


def _expect_scatter(search: LineSearch, lines: Floats) -> tuple[float, ...]:
    """Return the scatters to expect first: collectives of one run scatter alike, so the sharpest channel shows it."""
    sharpest_ns = search.weigh_lines(lines, SCATTERS_NS[1:2])[0, :, 2].min(initial=np.inf)
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
    for key in list_distinct(events.key).tolist():
        ends = events.end[events.key == key]
        first, stop = reference.of_key(key)
        instances, rows = np.unique(reference.instances[first:stop], return_index=True)
        if len(ends) == 1 and len(instances) == 1:
            offsets.append(float(reference.times[first + rows[0]] - ends[0]))
    if not offsets or np.ptp(offsets) > SKEW_NS:
        return None
    return Line(offset_ns=float(np.median(offsets)), center_ns=float(np.median(events.end)))
