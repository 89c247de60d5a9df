"""Votes of pairs of operations that may be one for offsets of a domain from a timeline.

Also lines through those with most votes.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.near import (
    FIRST_SCATTER_NS,
    FLOOR_NS,
    LIBRARY,
    MAX_DRIFT,
    SCATTERS_NS,
    TOGETHER_NS,
    Comparison,
    Line,
    Reference,
    Start,
    VotesArgument,
    find_line,
    fit_line,
    measure_distances,
    point_to,
    stack_lines,
)
from nsys_pp.arrays.columns import list_distinct
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

# Lines that are compared, of those with most votes.
CANDIDATES = 10

# Windows of offsets with most votes.
WINDOWS = 64

_SUFFICIENT = 3 * WINDOWS  # halves with most votes: a window takes two, and rules out the one before
_EXPECTED_NS = 1e6  # from the expected offset
_ROUNDED = 1 - 1e-9  # of a sum in another order
_MAX_VOTERS = 64  # of each channel: the operations after its longest gaps
_MAX_VOTES = 200_000
_MAX_VOTES_OF_LINE = 3_000  # the votes with most weight, through which a line is fitted


class Votes(Struct, frozen=True, kw_only=True):
    """Votes of pairs of operations for offsets, by offset; votes outside the listed windows may be absent.

    Attributes:
        time: End of the event, ns.
        voter: Number of the event among all that vote.
        voter_time: End of each of these, ns.
        offset_ns: End of the operation minus end of the event.
        weight: The votes of an event weigh 1 in total, in favour of rare pairs.
        link: Number of the pair of channels.
        half: Number of the half of a window; those of neighbours differ by one.
    """

    time: Floats
    voter: Int64s
    voter_time: Floats
    offset_ns: Floats
    weight: Floats
    link: Int64s
    half: Int64s


def vote(
    events: Events, is_asked: Bools, reference: Reference, center: Line, half_width_ns: float
) -> Votes | None:
    """Collect the votes of pairs within the width; None without any.

    Where these are too many, only pairs with an equal gap before vote.

    Args:
        events: Events of one domain.
        is_asked: Mask of those that vote.
        reference: Operations of the timeline.
        center: The expected line.
        half_width_ns: Largest distance from it.
    """
    voters = np.flatnonzero(is_asked & (events.gap_rank <= _MAX_VOTERS))
    expected = events.end[voters] + center.at(events.end[voters])
    keys, times, channels = reference.key, reference.times, reference.channels
    low, high = _find_windows(
        events.key[voters], expected - half_width_ns, expected + half_width_ns, keys, times
    )
    if (high - low).sum() > _MAX_VOTES:
        rows = _order_by_gap(reference)
        keys, times, channels = keys[rows], times[rows], channels[rows]
        with_gap = ~np.isnan(events.gap_before[voters])
        voters, expected = voters[with_gap], expected[with_gap]
        gap = events.gap_before[voters]
        tolerance = 2 * SKEW_NS + MAX_DRIFT * gap
        low, high = _find_windows(
            events.key[voters], gap - tolerance, gap + tolerance, keys, reference.gap_before[rows]
        )
    counts = high - low
    rarest = np.argsort(counts, kind="stable")
    kept = rarest[np.cumsum(counts[rarest]) <= _MAX_VOTES]
    voters, expected, low, high = voters[kept], expected[kept], low[kept], high[kept]
    return _collect_votes(events, voters, expected, low, high, times, channels, half_width_ns)


def _order_by_gap(reference: Reference) -> Int64s:
    """List the rows with a gap before, by key and this gap, stable."""
    rows = np.flatnonzero(~np.isnan(reference.gap_before))
    gaps, keys = reference.gap_before[rows], reference.key[rows]
    bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(rows)]
    return np.concatenate(
        [
            rows[first + np.argsort(gaps[first:stop], kind="stable")]
            for first, stop in itertools.pairwise(bounds)
        ]
    )


def _collect_votes(
    events: Events,
    voters: Int64s,
    expected: Floats,
    low: Int64s,
    high: Int64s,
    times: Floats,
    channels: Int64s,
    half_width_ns: float,
) -> Votes | None:
    """Collect the votes of voters for operations in a window of rows each, of these times and channels.

    Sorting all votes by offset takes most of the time of an alignment, and few of them are looked at: only
    those of the heaviest windows, and those near the expected time, are sorted and kept.
    """
    ends = np.ascontiguousarray(events.end[voters])
    columns: dict[str, npt.NDArray[Any]] = {
        "end": ends,
        "expected": np.ascontiguousarray(expected),
        "low": np.ascontiguousarray(low, dtype=np.int64),
        "high": np.ascontiguousarray(high, dtype=np.int64),
        "times": np.ascontiguousarray(times),
        "inside": np.empty(len(voters), dtype=np.int64),
    }
    counted = VotesArgument(count=len(voters), other_count=len(times), half_width=half_width_ns)
    point_to(counted, columns)
    votes = ctypes.byref(counted)
    if LIBRARY.near_count_votes(votes):
        raise ValueError("a voter may vote for a row that is not there")
    if not counted.votes:
        return None
    half_ns = _measure_half(counted.last - counted.first)
    sums = np.zeros(int((counted.most - counted.least) / half_ns) + 1)
    sections = ctypes.c_double(half_ns), ctypes.c_int64(len(sums))
    is_full = LIBRARY.near_sum_votes(votes, *sections, ctypes.c_void_p(sums.ctypes.data))
    windows = np.where(sums > 0, sums + np.append(sums[1:], 0.0), 0.0)
    least = np.partition(windows, -_SUFFICIENT)[-_SUFFICIENT] if len(windows) > _SUFFICIENT else 0.0
    heavy = np.flatnonzero((windows > 0) & (windows >= least * _ROUNDED))
    is_kept = np.zeros(len(sums) + 1, dtype=np.bool_)
    is_kept[heavy] = is_kept[heavy + 1] = True
    near = expected - ends - counted.least
    first, last = near.min() - _EXPECTED_NS - half_ns, near.max() + _EXPECTED_NS
    is_kept[max(int(first / half_ns), 0) : max(int(last / half_ns) + 1, 0)] = True
    number, others = (np.empty(counted.votes, dtype=np.int64) for _ in range(2))
    listed = ctypes.c_int64()
    addresses = (ctypes.c_void_p(column.ctypes.data) for column in (number, others))
    kept = ctypes.c_void_p(is_kept.ctypes.data)
    capacity = ctypes.c_int64(counted.votes)
    is_full |= LIBRARY.near_list_votes(votes, *sections, kept, capacity, *addresses, ctypes.byref(listed))
    if is_full:
        raise ValueError("a vote is beyond the limits of all votes")
    number, others = number[: listed.value], others[: listed.value]
    offset = times[others] - ends[number]
    order = np.argsort(offset, kind="stable")
    number, others, offset = number[order], others[order], offset[order]
    return Votes(
        time=ends[number],
        voter=number,
        voter_time=ends,
        offset_ns=offset,
        weight=1 / columns["inside"][number],
        link=events.channel[voters[number]] * (int(channels.max(initial=0)) + 1) + channels[others],
        half=((offset - counted.least) / half_ns).astype(np.int64),
    )


def _find_windows(
    keys: Int64s, low_values: Floats, high_values: Floats, other_keys: Int64s, values: Floats
) -> tuple[Int64s, Int64s]:
    """Find the rows of the others with the same key and a value in each window.

    Their keys ascend, and the values of each key.
    """
    low, high = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
    for key in list_distinct(keys).tolist():
        first, stop = other_keys.searchsorted((key, key + 1)).tolist()
        chosen = keys == key
        low[chosen] = first + values[first:stop].searchsorted(low_values[chosen])
        high[chosen] = first + values[first:stop].searchsorted(high_values[chosen], side="right")
    return low, high


def _measure_half(span_ns: float) -> float:
    """Return the width of half a window of offsets, of votes that are this far apart in time."""
    return (4 * SKEW_NS + MAX_DRIFT * span_ns) / 2


def list_windows(half: Int64s, votes: Floats) -> list[Int64s]:
    """List the windows of offsets with most votes, the best first: the votes of each.

    Args:
        half: Half of a window of each vote, ascending.
        votes: Weight of each vote; one or more.
    """
    first = np.flatnonzero(np.diff(half, prepend=-1))
    half, bounds, sums = half[first], np.append(first, len(half)), np.add.reduceat(votes, first)
    is_followed, weight = np.zeros(len(half), dtype=np.bool_), sums.copy()
    is_followed[:-1] = half[1:] - half[:-1] == 1
    weight[:-1] += np.where(is_followed[:-1], sums[1:], 0.0)
    ordered = np.argsort(-weight, kind="stable")[:_SUFFICIENT]
    stops = bounds[ordered + 1 + is_followed[ordered]]
    windows: list[Int64s] = []
    rows = np.arange(bounds[-1])
    taken: set[int] = set()
    for number, first, stop in zip(
        half[ordered].tolist(), bounds[ordered].tolist(), stops.tolist(), strict=True
    ):
        if len(windows) == WINDOWS:
            break
        if number not in taken and number + 1 not in taken:
            taken |= {number, number + 1}
            windows.append(rows[first:stop])
    return windows


def list_agreeing(votes: Votes, windows: list[Int64s]) -> list[Int64s]:
    """List the windows whose votes agree most from one to the next, except the first `CANDIDATES`.

    Unrelated operations of a training repeat themselves, and agree to some tens of microseconds by many
    offsets; the offset of few shared ones among them has fewer votes, that agree to microseconds.
    """
    if len(windows) <= CANDIDATES:
        return []
    agreement = _measure_agreement(votes, windows)
    best = np.argsort(-agreement, kind="stable")[:CANDIDATES].tolist()
    return [windows[one] for one in best if one >= CANDIDATES and agreement[one] > 0]


def list_expected(votes: Votes, center: Line, dense: list[Int64s]) -> list[Int64s]:
    """List the windows with most votes near the expected offset, where most clocks are.

    Except those in `dense`.

    Where few operations are shared, unrelated ones that repeat have more votes elsewhere.
    """
    near = np.flatnonzero(np.abs(votes.offset_ns - center.at(votes.time)) <= _EXPECTED_NS)
    if not len(near):
        return []
    listed = {(int(window[0]), int(window[-1])) for window in dense}
    time, offset = votes.time[near], votes.offset_ns[near]
    half = ((offset - offset[0]) / _measure_half(float(time.max() - time.min()))).astype(np.int64)
    windows = [near[window] for window in list_windows(half, votes.weight[near])]
    return [window for window in windows if (int(window[0]), int(window[-1])) not in listed]


def _measure_agreement(votes: Votes, windows: list[Int64s]) -> Floats:
    """Measure how much the votes of each window agree from one to the next in time, between two channels.

    One window or more.
    """
    rows = np.concatenate(windows)
    window = np.repeat(np.arange(len(windows)), [len(own) for own in windows])
    link = window * (int(votes.link.max()) + 1) + votes.link[rows]
    rank = np.unique(votes.voter_time, return_inverse=True)[1]  # equal for equal times
    order = np.lexsort((rank[votes.voter[rows]], link))
    offset_ns, link, window = votes.offset_ns[rows[order]], link[order], window[order]
    is_next = link[1:] == link[:-1]
    apart_ns = np.abs(offset_ns[1:] - offset_ns[:-1])[is_next]
    closeness = np.maximum(np.log(TOGETHER_NS / (apart_ns + FLOOR_NS)), 0.0)
    bounds = np.searchsorted(window[1:][is_next], np.arange(len(windows) + 1))
    return np.array([closeness[first:stop].sum() for first, stop in itertools.pairwise(bounds.tolist())])


_MAX_DENSE = 5  # lines through most votes of collectives, and of messages, that are fitted to the operations
_MAX_OTHERS = 3  # the same, of lines through votes that agree, and of lines near the expected offset
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
) -> list[Candidate]:
    """Find the lines by which operations of a domain and of a timeline agree.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        center: Line around which to search.
        half_width_ns: Largest distance from it.
        scatter_ns: Scatter of the ends of one operation in this run; None: not known yet.
        near_ns: Distance from `center` within which a candidate is looked for by the operations there alone,
            if another one has most evidence: operations in lockstep may have more votes. 0: none is.

    Returns:
        Candidates with evidence, the one with most first, no two at the same offset.
    """
    reference = reference.keep_keys(events.key)
    events = events.select(np.isin(events.key, list_distinct(reference.key)))
    if not len(events):
        return []
    comparison = Comparison(events, reference)
    first = [
        line
        for is_message in (False, True)  # a few collectives are stronger evidence than many messages
        for line in _list_first_lines(comparison, center, half_width_ns, events.is_message == is_message)
    ]
    ranked = _rank_lines(comparison, first, scatter_ns)
    if near_ns and not (ranked and ranked[0].line.distance_ns(center) <= near_ns):
        near = _rank_lines(comparison, [(comparison.start(center, within_ns=near_ns), 1)], scatter_ns)
        near = [candidate for candidate in near if candidate.line.distance_ns(center) <= near_ns]
        ranked = _keep_apart([*ranked, *near], near_ns)
    return ranked


def _list_first_lines(
    comparison: Comparison, center: Line, half_width_ns: float, is_voter: Bools
) -> Iterator[tuple[Start, int]]:
    """Yield the best lines through the votes of some events.

    Each with the number of lines that it was chosen from.

    The number is relative to other kinds of lines: the best of many has some evidence by chance.
    """
    votes = vote(comparison.events, is_voter, comparison.reference, center, half_width_ns)
    if votes is None:
        return
    windows = list_windows(votes.half, votes.weight)
    dense = windows[:CANDIDATES]
    for chosen, count, tried in (
        (dense, _MAX_DENSE, 1),
        (list_agreeing(votes, windows), _MAX_OTHERS, WINDOWS // CANDIDATES),
        (list_expected(votes, center, dense), _MAX_OTHERS, 1),
    ):
        kept = [
            window[np.argsort(-votes.weight[window], kind="stable")[:_MAX_VOTES_OF_LINE]] for window in chosen
        ]
        lines = [find_line(votes.time[own], votes.offset_ns[own], width=4 * SKEW_NS) for own in kept]
        starts = [comparison.start(line) for line in lines]
        if len(starts) > count:
            starts = sorted(starts, key=lambda start: -start.evidence)[:count]
        yield from ((start, tried) for start in starts)


def _fit_start(comparison: Comparison, start: Start, scatter_ns: float) -> list[Line]:
    """Fit lines to the operations near a first line, one to each of the sharpest pairs of channels.

    Unrelated channels in lockstep have many operations near a first line, and would outweigh the few that are
    shared in a fit of all.
    """
    ends, times = comparison.events.end, comparison.reference.times
    lines: list[Line] = []
    for rows, residual_ns in start.sharpest:
        line = fit_line(ends[rows], residual_ns + start.line.at(ends[rows]), start.line, floor_ns=FLOOR_NS)
        pairs = comparison.pair(line, (scatter_ns,))
        if len(pairs.event_row):
            own = ends[pairs.event_row]
            line = fit_line(
                own, times[pairs.reference_row] - own, line, floor_ns=FLOOR_NS, noise=pairs.scatter_ns
            )
        if all(line.distance_ns(other) > FLOOR_NS for other in lines):
            lines.append(line)
    return lines


def _rank_lines(
    comparison: Comparison, first: Sequence[tuple[Start, int]], scatter_ns: float | None
) -> list[Candidate]:
    """Fit lines to the operations near first lines, and rank them by evidence.

    Lines without evidence are dropped.

    Args:
        comparison: The events and operations.
        first: First lines, each with the number of lines that it was chosen from.
        scatter_ns: As for `find_candidates`.
    """
    expected_ns = FIRST_SCATTER_NS if scatter_ns is None else scatter_ns
    fitted = [(line, tried) for start, tried in first for line in _fit_start(comparison, start, expected_ns)]
    lines = [line for line, _ in fitted]
    scatters: Sequence[float] = (expected_ns,)
    if scatter_ns is None:
        # collectives of one run scatter alike, so the sharpest channel shows it
        sharpest_ns = min((comparison.weigh(line, SCATTERS_NS[1])[2] for line in lines), default=np.inf)
        scatters = SCATTERS_NS if np.isinf(sharpest_ns) else (widen_scatter(sharpest_ns),)
    weights = [max(comparison.weigh(line, scatter) for scatter in scatters) for line in lines]
    if scatter_ns is None and lines:
        sharpest_ns = max(weights)[2]
        if np.isfinite(sharpest_ns) and widen_scatter(sharpest_ns) > max(scatters):
            # a line with less evidence has the sharpest channel, by chance: judged by it, ends that scatter
            # more would hardly count
            weights = [comparison.weigh(line, widen_scatter(sharpest_ns)) for line in lines]
    candidates = [
        Candidate(
            line=line,
            evidence=evidence - float(np.log(tried)),
            exchange_evidence=exchange,
            sharpest_ns=sharpest,
        )
        for (line, tried), (evidence, exchange, sharpest) in zip(fitted, weights, strict=True)
    ]
    return _keep_apart([candidate for candidate in candidates if candidate.evidence > 0], _SAME_NS)


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


def widen_scatter(sharpest_ns: float) -> float:
    """Return the scatter to expect of all collectives, from the scatter of the sharpest channel.

    >>> widen_scatter(100.0), widen_scatter(5_000.0), widen_scatter(1e6)
    (1500.0, 8000.0, 30000.0)
    """
    return float(np.clip(1.5 * sharpest_ns + 500.0, SCATTERS_NS[0], SCATTERS_NS[-1]))


def find_single(events: Events, reference: Reference) -> Line | None:
    """Find a constant offset by keys with a single operation on both sides.

    None without any, or where they disagree.
    """
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
