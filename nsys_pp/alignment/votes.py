"""Votes of pairs of operations that may be one for offsets of a domain from a timeline, and lines through those with most votes."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import FLOOR_NS, MAX_DRIFT, Line, find_lines
from nsys_pp.alignment.pairs import TOGETHER_NS
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.line_finder import sum_sections
from nsys_pp.arrays.members import list_members
from nsys_pp.arrays.order import order_unsorted_rows, sort_stable
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.arrays.votes import CollectedVotes, collect_votes
from nsys_pp.frames.clock import SKEW_NS

CANDIDATES = 10
"""Lines that are compared, of those with most votes."""

WINDOWS = 64
"""Windows of offsets with most votes."""

_SUFFICIENT = (
    3 * WINDOWS
)  # halves of windows with most votes: a window takes two, and rules out the one before
_EXPECTED_NS = 1e6  # from the expected offset
_ROUNDING_NS = 1.0  # of a distance from it
_MAX_VOTERS = 64  # of each channel: the operations after its longest gaps
_MAX_VOTES = 200_000
_MAX_VOTES_OF_LINE = 3_000  # the votes with most weight, through which a line is fitted


class Halves(Struct, frozen=True, kw_only=True):
    """Halves of windows with votes, by offset.

    Attributes:
        half: Number of the half; those of neighbours differ by one.
        bounds: First vote of each half, and their number.
        sums: Sum of the weights of each half.
    """

    half: Int64s
    bounds: Int64s
    sums: Floats


class Votes(Struct, frozen=True, kw_only=True):
    """Votes of pairs of operations for offsets, by offset; votes outside the listed windows may be absent.

    Attributes:
        time: End of the event, ns.
        voter: Number of the event among all that vote.
        voter_time: End of each of these, ns.
        offset_ns: End of the operation minus end of the event.
        weight: The votes of an event weigh 1 in total, in favour of rare pairs.
        link: Number of the pair of channels.
        halves: Halves of windows with votes.
    """

    time: Floats
    voter: Int64s
    voter_time: Floats
    offset_ns: Floats
    weight: Floats
    link: Int64s
    halves: Halves


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
    core = load_core()
    if core is not None:
        collected = collect_votes(
            core,
            end=events.end[voters],
            expected=expected,
            channel=events.channel[voters],
            low=low,
            high=high,
            times=times,
            other_channel=channels,
            half_width=half_width_ns,
            width=float(4 * SKEW_NS),
            drift=MAX_DRIFT,
            sufficient=_SUFFICIENT,
            near=_EXPECTED_NS + _ROUNDING_NS,
        )
        if collected is not None:
            return _build_votes(collected, events.end[voters]) if len(collected.offset) else None
    return _collect_votes(events, voters, expected, low, high, times, channels, half_width_ns)


def _order_by_gap(reference: Reference) -> Int64s:
    """List the rows with a gap before, by key and this gap, stable."""
    rows = np.flatnonzero(~np.isnan(reference.gap_before))
    gaps, keys = reference.gap_before[rows], reference.key[rows]
    bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(rows)]
    return np.concatenate(
        [rows[first + sort_stable(gaps[first:stop])] for first, stop in itertools.pairwise(bounds)]
    )


def _build_votes(collected: CollectedVotes, voter_time: Floats) -> Votes:
    halves = Halves(half=collected.half, bounds=collected.bounds, sums=collected.sums)
    return Votes(
        time=collected.time,
        voter=collected.voter,
        voter_time=voter_time,
        offset_ns=collected.offset,
        weight=collected.weight,
        link=collected.link,
        halves=halves,
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
    """Collect the votes of voters for operations in a window of rows each, of these times and channels."""
    number = np.repeat(np.arange(len(voters)), high - low)
    others = expand_windows(low, high)
    is_inside = np.abs(times[others] - expected[number]) <= half_width_ns
    number, others = number[is_inside], others[is_inside]
    if not len(others):
        return None
    offsets = times[others] - events.end[voters[number]]
    order = sort_stable(offsets)
    number, others = number[order], others[order]
    rows = voters[number]
    time, weight = events.end[rows], 1 / np.bincount(number)[number]
    return Votes(
        time=time,
        voter=number,
        voter_time=events.end[voters],
        offset_ns=offsets[order],
        weight=weight,
        link=events.channel[rows] * (int(channels.max(initial=0)) + 1) + channels[others],
        halves=_sum_halves(time, offsets[order], weight),
    )


def _find_windows(
    keys: Int64s, low_values: Floats, high_values: Floats, other_keys: Int64s, values: Floats
) -> tuple[Int64s, Int64s]:
    """Find the rows of the others with the same key and a value in each window; their keys ascend, and the values of each key."""
    low, high = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
    for key in list_members(keys).tolist():
        first, stop = other_keys.searchsorted((key, key + 1)).tolist()
        chosen = keys == key
        low[chosen] = first + values[first:stop].searchsorted(low_values[chosen])
        high[chosen] = first + values[first:stop].searchsorted(high_values[chosen], side="right")
    return low, high


def _sum_halves(time: Floats, offset_ns: Floats, weight: Floats) -> Halves:
    """Sum the weights of votes by halves of windows."""
    width = 4 * SKEW_NS + MAX_DRIFT * float(time.max() - time.min())
    half = np.floor((offset_ns - offset_ns[0]) / (width / 2)).astype(np.int64)
    is_first = np.ones(len(half), dtype=np.bool_)
    is_first[1:] = half[1:] != half[:-1]
    first = np.flatnonzero(is_first)
    return Halves(
        half=half[first],
        bounds=np.append(first, len(half)),
        sums=np.asarray(np.bincount(is_first.cumsum() - 1, weight), dtype=np.float64),
    )


def list_windows(halves: Halves) -> list[Int64s]:
    """List the windows of offsets with most votes, the best first: the votes of each."""
    half, bounds, sums = halves.half, halves.bounds, halves.sums
    is_followed, weight = np.zeros(len(half), dtype=np.bool_), sums.copy()
    is_followed[:-1] = half[1:] - half[:-1] == 1
    weight[:-1] += np.where(is_followed[:-1], sums[1:], 0.0)
    ordered = _order_heaviest(weight)
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


def _order_heaviest(weight: Floats) -> Int64s:
    """List the halves with most weight, the heaviest first, as many as `list_windows` looks at."""
    rows = np.arange(len(weight))
    if len(weight) > _SUFFICIENT:
        rows = np.flatnonzero(weight >= np.partition(weight, -_SUFFICIENT)[-_SUFFICIENT])
    return rows[np.argsort(-weight[rows], kind="stable")]


def list_agreeing(votes: Votes, windows: list[Int64s]) -> list[Int64s]:
    """List the windows whose votes agree most from one to the next, except the first `CANDIDATES`.

    Unrelated operations of a training repeat themselves, and agree to some tens of microseconds by many offsets; the offset of
    few shared ones among them has fewer votes, that agree to microseconds.
    """
    if len(windows) <= CANDIDATES:
        return []
    agreement = _measure_agreement(votes, windows)
    best = np.argsort(-agreement, kind="stable")[:CANDIDATES].tolist()
    return [windows[one] for one in best if one >= CANDIDATES and agreement[one] > 0]


def list_expected(votes: Votes, center: Line, dense: list[Int64s]) -> list[Int64s]:
    """List the windows with most votes near the expected offset, where most clocks are, except those in `dense`.

    Where few operations are shared, unrelated ones that repeat have more votes elsewhere.
    """
    distance_ns = np.abs(votes.offset_ns - center.at(votes.time))
    near = np.flatnonzero(distance_ns <= _EXPECTED_NS)
    if not len(near):
        return []
    listed = {(int(window[0]), int(window[-1])) for window in dense}
    windows = [
        near[window]
        for window in list_windows(_sum_halves(votes.time[near], votes.offset_ns[near], votes.weight[near]))
    ]
    return [window for window in windows if (int(window[0]), int(window[-1])) not in listed]


def _measure_agreement(votes: Votes, windows: list[Int64s]) -> Floats:
    """Measure how much the votes of each window agree from one to the next in time, between two channels; one window or more."""
    rows, window = np.concatenate(windows), _number_windows(windows)
    link = window * (int(votes.link.max()) + 1) + votes.link[rows]
    rank = np.unique(votes.voter_time, return_inverse=True)[1]  # equal for equal times
    order = order_unsorted_rows(link, rank[votes.voter[rows]])
    offset_ns, link, window = votes.offset_ns[rows[order]], link[order], window[order]
    is_next = link[1:] == link[:-1]
    apart_ns = np.abs(offset_ns[1:] - offset_ns[:-1])[is_next]
    closeness = np.maximum(np.log(TOGETHER_NS / (apart_ns + FLOOR_NS)), 0.0)
    bounds = np.searchsorted(window[1:][is_next], np.arange(len(windows) + 1))
    core = load_core()
    if core is not None:
        return sum_sections(core, closeness, bounds)
    return np.array([closeness[first:stop].sum() for first, stop in itertools.pairwise(bounds.tolist())])


def _number_windows(windows: list[Int64s]) -> Int64s:
    """Return the number of the window of each row."""
    return np.repeat(np.arange(len(windows)), [len(window) for window in windows])


def fit_votes(votes: Votes, windows: list[Int64s]) -> Floats:
    """Fit a line through the votes of each window: offset, rate and center of each, in columns."""
    kept = [
        window[np.argsort(-votes.weight[window], kind="stable")[:_MAX_VOTES_OF_LINE]]
        if len(window) > _MAX_VOTES_OF_LINE
        else window
        for window in windows
    ]
    return find_lines(votes.time, votes.offset_ns, kept, width=4 * SKEW_NS)
