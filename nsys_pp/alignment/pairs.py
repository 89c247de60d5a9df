"""Pairs of equal operations of a domain and a timeline, for a given line between their clocks, and their evidence.

Proximity of two operations alone is weak evidence where operations are dense, and independent ranks that do the same
at the same time agree to tens of microseconds. The members of one collective agree to some microseconds, throughout
two channels. The evidence of two channels is the logarithm of a likelihood ratio: how much better "they are one"
explains the distances of their operations than "they have nothing to do with each other".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_pp.alignment.events import RECEIVE, SEND, Events
from nsys_pp.alignment.lines import Line
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

SCATTERS_NS = (1_500.0, 4_000.0, 12_000.0, 30_000.0)
"""Scatters of the ends of one operation that are expected, where it is not known better."""

_PRIOR_COUNT = 2.0  # number of operations that this expectation counts as
_LOCKSTEP = 9.2  # logarithm of the range of scatters of unrelated operations: 1 us to 10 ms
_MEASURABLE = 6  # pairs that a channel's scatter is measured by
_MEASURABLE_WHOLE = 3  # the same, where each has all operations of the other
_MISSING = 2.0  # evidence against two channels, for each operation that only one of them has
_MISSING_MESSAGE = 0.2  # the same for messages: a stream can have messages with several peers
_MAX_CONTRADICTION = 30.0  # of two channels of one communicator


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Operations of a timeline, in order of key and time; arrays as in `Events`."""

    key: Int64s
    times: Floats  # ends, on the timeline's clock, ns since the events' origin
    gap_before: Floats
    gap_rank: Int64s
    kind: Int64s
    channels: Int64s  # of the timeline
    instances: Int64s

    def __len__(self) -> int:
        return len(self.times)

    def select(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Reference:
        """Return the operations of these rows."""
        return Reference(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    def of_key(self, key: int) -> tuple[int, int]:
        """Return the half-open rows of a key."""
        first, stop = np.searchsorted(self.key, (key, key + 1))
        return int(first), int(stop)

    def insert(self, other: Reference) -> Reference:
        """Return the operations of both, in order."""
        at = np.empty(len(other), dtype=np.int64)
        for key in np.unique(other.key).tolist():
            (first, stop), (low, high) = self.of_key(key), other.of_key(key)
            at[low:high] = first + np.searchsorted(self.times[first:stop], other.times[low:high])
        return Reference(
            **{
                name: np.insert(getattr(self, name), at, getattr(other, name))
                for name in self.__dataclass_fields__
            }
        )


def build_reference(events: Events, times: Floats, channels: Int64s, instances: Int64s) -> Reference:
    """Build a reference from events.

    Args:
        events: The events.
        times: Their ends on the timeline's clock.
        channels: Their channels of the timeline.
        instances: Their operations.
    """
    order = np.lexsort((times, events.key))
    return Reference(
        key=events.key[order],
        times=times[order],
        gap_before=events.gap_before[order],
        gap_rank=events.gap_rank[order],
        kind=events.kind[order],
        channels=channels[order],
        instances=instances[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Pairs of an event of a domain and an operation of a timeline that are near each other by a line.

    In each pair of channels, each event and each operation occurs at most once.

    Attributes:
        event_row: Row of the event.
        reference_row: Row of the reference.
        residual_ns: Time of the operation minus predicted time of the event.
        link: Number of the pair of channels.
        event_channel: Channel of the domain, of each pair of channels.
        predicted: Predicted times of all events.
        count: Number of pairs, of each pair of channels.
        squares: Sum of the squared residuals, of each pair of channels.
        rate: Operations per ns while both were recorded, of the denser one of each pair of channels.
        missing: Evidence of the operations that only one has, of each pair of channels.
        independent: Share of the pairs that are not repeated at the same time in other channels, of each pair of channels.
        weight: Weight of each pair in a vote: a channel with many operations has more weight, but less than in proportion,
            and one that shares few of its operations has little.
    """

    event_row: Int64s
    reference_row: Int64s
    residual_ns: Floats
    link: Int64s
    event_channel: Int64s
    predicted: Floats
    count: Int64s
    squares: Floats
    rate: Floats
    missing: Floats
    independent: Floats
    weight: Floats


def find_near(events: Events, reference: Reference, line: Line, tolerance_ns: float) -> Near:
    """Find the operations near events by a line.

    Args:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
        line: Correction from the domain to the timeline.
        tolerance_ns: Largest distance of a pair.
    """
    predicted = events.end + line.at(events.end)
    event_row, reference_row = _list_near_pairs(events, predicted, reference, tolerance_ns)
    width = int(reference.channels.max(initial=0)) + 1
    numbers, link = np.unique(
        events.channel[event_row] * width + reference.channels[reference_row], return_inverse=True
    )
    residual = reference.times[reference_row] - predicted[event_row]
    kept = _keep_mutual(link, event_row, reference_row, np.abs(residual))
    link, residual = link[kept], residual[kept]
    count = np.bincount(link, minlength=len(numbers))
    event_channel = numbers // width
    only_one, rate = _count_others(
        events.channel, predicted, reference, event_channel, numbers % width, count
    )
    is_message = np.zeros(int(events.channel.max(initial=0)) + 1, dtype=bool)
    is_message[events.channel[events.is_message]] = True
    return Near(
        event_row=event_row[kept],
        reference_row=reference_row[kept],
        residual_ns=residual,
        link=link,
        event_channel=event_channel,
        predicted=predicted,
        count=count,
        squares=np.asarray(np.bincount(link, residual**2, len(numbers)), dtype=np.float64),
        rate=rate,
        missing=-np.where(is_message[event_channel], _MISSING_MESSAGE, _MISSING) * only_one,
        independent=np.bincount(link, 1 / _count_repeats(events)[event_row[kept]], len(numbers)) / count,
        weight=(np.sqrt(count) / np.maximum(count + only_one, 1))[link],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of an event of a domain and a row of the reference for the same operation.

    Each event and, in each channel, each operation occurs at most once.

    Attributes:
        event_row: Row of the event, ascending.
        reference_row: Row of the reference.
        scatter_ns: Scatter of the pairs of the event's channel.
        evidence: Logarithm of the likelihood ratio of all channels together.
        sharpest_ns: Least scatter of the channels with enough pairs to measure it; infinite without any.
    """

    event_row: Int64s
    reference_row: Int64s
    scatter_ns: Floats
    evidence: float
    sharpest_ns: float


def pair_events(events: Events, reference: Reference, near: Near, scatter_ns: float) -> Pairs:
    """Pair events with the operations that they are.

    Each channel of the domain is paired with one channel of the timeline, the one with most evidence; a channel without
    evidence is not paired. Channels of one communicator that overlap in time but have no operation at the same
    time are evidence against the line.

    Args:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
        near: Pairs near each other.
        scatter_ns: Expected scatter of the ends of one operation.
    """
    links, count, squares = len(near.event_channel), near.count, near.squares
    # operations of channels in lockstep are near each other together, not one by one
    independent = np.minimum(1.0, (8 + 2 * np.sqrt(count)) / np.maximum(count, 1))
    closeness = np.bincount(near.link, _weigh(near.residual_ns, scatter_ns), links) * independent
    scatter = np.sqrt((squares + _PRIOR_COUNT * scatter_ns**2) / (count + _PRIOR_COUNT))
    first = np.log(1 / (2 * _LOCKSTEP * near.rate * np.maximum(scatter, scatter_ns)))
    evidence = (closeness + np.maximum(first, 0.0) + near.missing) * near.independent
    chosen = _choose_channels(evidence, near.event_channel)
    against = _contradict(events, near.predicted, reference, near.event_channel[chosen])
    rows = np.flatnonzero(chosen[near.link])
    rows = rows[np.argsort(near.event_row[rows], kind="stable")]
    is_measured = chosen & ((count >= _MEASURABLE) | ((count >= _MEASURABLE_WHOLE) & (near.missing == 0)))
    return Pairs(
        event_row=near.event_row[rows],
        reference_row=near.reference_row[rows],
        scatter_ns=scatter[near.link[rows]],
        evidence=float(evidence[chosen].sum()) + against,
        sharpest_ns=float(np.sqrt(squares[is_measured] / count[is_measured]).min(initial=np.inf)),
    )


def _list_near_pairs(
    events: Events, predicted: Floats, reference: Reference, tolerance_ns: float
) -> tuple[Int64s, Int64s]:
    """List all pairs of equal key within the tolerance, without two sends or two receives."""
    low, high = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    for key in np.unique(events.key).tolist():
        first, stop = reference.of_key(key)
        chosen = events.key == key
        times = reference.times[first:stop]
        low[chosen] = first + np.searchsorted(times, predicted[chosen] - tolerance_ns)
        high[chosen] = first + np.searchsorted(times, predicted[chosen] + tolerance_ns, side="right")
    event_row, reference_row = np.repeat(np.arange(len(events)), high - low), expand_windows(low, high)
    kind = events.kind[event_row]
    is_same_side = ((kind == SEND) | (kind == RECEIVE)) & (kind == reference.kind[reference_row])
    return event_row[~is_same_side], reference_row[~is_same_side]


def _keep_mutual(combined: Int64s, event_row: Int64s, reference_row: Int64s, distance: Floats) -> Int64s:
    """List the pairs in which each is the nearest of the other, among the operations of two channels."""
    by_distance = np.argsort(distance, kind="stable")
    for rows in (event_row, reference_row):
        width = int(rows.max(initial=0)) + 1
        by_distance = by_distance[_mark_first((combined * width + rows)[by_distance])]
    return by_distance


def _mark_first(values: Int64s) -> npt.NDArray[np.bool_]:
    """Return the mask of the first occurrence of each value."""
    is_first = np.zeros(len(values), dtype=bool)
    is_first[np.unique(values, return_index=True)[1]] = True
    return is_first


def _count_repeats(events: Events) -> Int64s:
    """Count the channels that have an event of this key at the same time: tensor slices do the same together."""
    order = np.lexsort((events.end, events.key))
    apart = 2 * SKEW_NS + float(np.ptp(events.end)) if len(events) else 1.0
    number = np.cumsum(np.diff(events.key[order], prepend=events.key[order[:1]]) != 0)
    times = events.end[order] - events.end.min(initial=0.0) + number * apart
    low = np.searchsorted(times, times - SKEW_NS)
    high = np.searchsorted(times, times + SKEW_NS, side="right")
    repeats = np.empty(len(events), dtype=np.int64)
    repeats[order] = high - low
    return repeats


def _count_others(
    channel: Int64s,
    predicted: Floats,
    reference: Reference,
    event_channel: Int64s,
    reference_channel: Int64s,
    count: Int64s,
) -> tuple[Floats, Floats]:
    """Count the operations that only one of two channels has, and their rate, while both were recorded.

    Returns:
        Number of operations without a pair, and the operations per ns of the denser channel, of each pair of channels.
    """
    if not len(count):
        return np.zeros(0), np.zeros(0)
    since = max(float(predicted.min()), float(reference.times.min())) - SKEW_NS
    until = min(float(predicted.max()), float(reference.times.max())) + SKEW_NS
    own = np.bincount(channel[(predicted >= since) & (predicted <= until)], minlength=int(channel.max()) + 1)
    is_inside = (reference.times >= since) & (reference.times <= until)
    others = np.bincount(reference.channels[is_inside], minlength=int(reference.channels.max()) + 1)
    own_count, other_count = (
        np.maximum(own[event_channel], count),
        np.maximum(others[reference_channel], count),
    )
    rate = np.maximum(own_count, other_count) / max(until - since, 1.0)
    return (own_count + other_count - 2 * count).astype(np.float64), rate


def _weigh(residual: Floats, scatter_ns: float) -> Floats:
    """Return the log likelihood ratio of residuals: of one collective, against two in lockstep.

    The first has a t distribution with three degrees of freedom, the second a scatter of unknown size, from
    microseconds to milliseconds (a distribution that is uniform in the logarithm).
    """
    own = np.log(0.3675 / scatter_ns) - 2 * np.log1p((residual / scatter_ns) ** 2 / 3)
    lockstep = -np.log(2 * _LOCKSTEP * np.maximum(np.abs(residual), scatter_ns))
    return np.asarray(own - lockstep)


def _choose_channels(evidence: Floats, event_channel: Int64s) -> npt.NDArray[np.bool_]:
    """Choose the channel of the timeline with most evidence, more than none, for each channel of the domain."""
    order = np.lexsort((-evidence, event_channel))
    best = order[np.diff(event_channel[order], prepend=-1) != 0]
    chosen = np.zeros(len(evidence), dtype=bool)
    chosen[best[evidence[best] > 0]] = True
    return chosen


def _contradict(events: Events, predicted: Floats, reference: Reference, paired: Int64s) -> float:
    """Return the evidence against a line by collectives of one communicator that were recorded at other times.

    Args:
        events: Events of the domain.
        predicted: Their times on the timeline.
        reference: Operations of the timeline.
        paired: Channels of the domain that were paired.
    """
    if not events.has_communicator.any():
        return 0.0
    is_tested = (events.has_communicator > 0) & ~events.is_message & ~np.isin(events.channel, paired)
    against = 0.0
    for key in np.unique(events.key[is_tested]).tolist():
        first, stop = reference.of_key(key)
        own, times = predicted[is_tested & (events.key == key)], reference.times[first:stop]
        if len(times):
            since, until = max(own.min(), times[0]), min(own.max(), times[-1])
            both = min(int(((x >= since) & (x <= until)).sum()) for x in (own, times))
            against -= min(_MISSING * both, _MAX_CONTRADICTION)
    return against
