"""Pairs of equal operations of a domain and a timeline, for a given line between their clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import MAX_DRIFT, Line, quantile_sigma
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

_MIN_SHARED_FRACTION = 0.75  # of the operations that two channels could share
_EQUAL_NS = 6_000.0  # differences between channels in scatter or offset up to this are ignored
_MIN_OPERATIONS = 3  # paired operations of two channels, unless one has fewer operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Operations of a timeline, in order of key and time; arrays as in `Events`."""

    key: Int64s
    times: Floats  # ends, on the timeline's clock, ns since the events' origin
    gap_before: Floats
    gap_after: Floats
    gap_rank: Int64s
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
        gap_after=events.gap_after[order],
        gap_rank=events.gap_rank[order],
        channels=channels[order],
        instances=instances[order],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of an event of a domain and a row of the reference for the same operation, by event."""

    event_row: Int64s
    reference_row: Int64s

    def count(self, reference: Reference) -> int:
        """Count the distinct operations."""
        return len(np.unique(reference.instances[self.reference_row]))


def pair_events(events: Events, reference: Reference, line: Line, *, tolerance_ns: float = SKEW_NS) -> Pairs:
    """Pair events with operations that are near them by a line, in channels that share most operations.

    Proximity of two operations alone is weak evidence where operations are dense. It is strong if the gaps
    to their neighbours agree as well, throughout two channels.

    Args:
        events: Events of one domain.
        reference: Operations of the timeline.
        line: Correction from the domain to the timeline.
        tolerance_ns: Largest distance of a pair.
    """
    predicted = events.end + line.at(events.end)
    event_row, reference_row = _list_near_pairs(events, predicted, reference, tolerance_ns)
    agrees = _gaps_agree(events, reference, event_row, reference_row)
    event_row, reference_row = event_row[agrees], reference_row[agrees]
    joined = _join_channels(events, predicted, reference, event_row, reference_row)
    chosen = (
        joined[events.channel[event_row] - events.channel.min(initial=0)] == reference.channels[reference_row]
        if len(event_row)
        else []
    )
    event_row, reference_row = event_row[chosen], reference_row[chosen]
    order = np.lexsort((np.abs(reference.times[reference_row] - predicted[event_row]), event_row))
    event_row, reference_row = event_row[order], reference_row[order]
    nearest = np.diff(event_row, prepend=-1) > 0
    return Pairs(event_row=event_row[nearest], reference_row=reference_row[nearest])


def keep_consensus(pairs: Pairs, events: Events, reference: Reference, line: Line) -> Pairs:
    """Drop channels with more scatter than the best one, or with another offset.

    Ranks that run the same operations at nearly the same time without sharing a collective (replicas of a
    stage, each with its own tensor-parallel group) scatter by tens of microseconds.
    """
    residual = (
        reference.times[pairs.reference_row]
        - events.end[pairs.event_row]
        - line.at(events.end[pairs.event_row])
    )
    channels, number = np.unique(events.channel[pairs.event_row], return_inverse=True)
    middle = np.array([np.median(residual[number == index]) for index in range(len(channels))])
    spread = np.array(
        [quantile_sigma(residual[number == index] - middle[index]) for index in range(len(channels))]
    )
    is_reliable = np.bincount(number, minlength=len(channels)) >= _MIN_OPERATIONS
    if not is_reliable.any():
        return pairs
    best = int(np.argmin(np.where(is_reliable, spread, np.inf)))
    is_near = (spread <= 3 * spread[best] + _EQUAL_NS) & (
        np.abs(middle - middle[best]) <= 2 * _EQUAL_NS + spread[best]
    )
    return Pairs(
        event_row=pairs.event_row[is_near[number]], reference_row=pairs.reference_row[is_near[number]]
    )


def _list_near_pairs(
    events: Events, predicted: Floats, reference: Reference, tolerance_ns: float
) -> tuple[Int64s, Int64s]:
    """List all pairs of equal key within the tolerance."""
    low, high = np.zeros(len(events), dtype=np.int64), np.zeros(len(events), dtype=np.int64)
    for key in np.unique(events.key).tolist():
        first, stop = reference.of_key(key)
        chosen = events.key == key
        times = reference.times[first:stop]
        low[chosen] = first + np.searchsorted(times, predicted[chosen] - tolerance_ns)
        high[chosen] = first + np.searchsorted(times, predicted[chosen] + tolerance_ns, side="right")
    return np.repeat(np.arange(len(events)), high - low), expand_windows(low, high)


def _gaps_agree(
    events: Events, reference: Reference, event_row: Int64s, reference_row: Int64s
) -> npt.NDArray[np.bool_]:
    """Return the mask of pairs with an equal gap before or after, or without any gap to compare."""
    agrees, single = np.zeros(len(event_row), dtype=bool), np.ones(len(event_row), dtype=bool)
    for event_gap, reference_gap in (
        (events.gap_before[event_row], reference.gap_before[reference_row]),
        (events.gap_after[event_row], reference.gap_after[reference_row]),
    ):
        with np.errstate(invalid="ignore"):
            agrees |= np.abs(event_gap - reference_gap) <= 2 * SKEW_NS + MAX_DRIFT * event_gap
        single &= np.isnan(event_gap) | np.isnan(reference_gap)
    return agrees | single


def _join_channels(
    events: Events, predicted: Floats, reference: Reference, event_row: Int64s, reference_row: Int64s
) -> Int64s:
    """Find the channel of the timeline with the operations of each channel of the domain; -1 without one.

    Returns:
        Channels of the timeline, indexed by channel of the domain minus the lowest one.
    """
    lowest = int(events.channel.min(initial=0))
    joined = np.full(int(events.channel.max(initial=0)) - lowest + 1, -1, dtype=np.int64)
    if not len(event_row):
        return joined
    width = int(reference.channels.max()) + 1
    distinct = np.unique(
        events.channel[event_row] * width * len(events)
        + reference.channels[reference_row] * len(events)
        + event_row
    ) // len(events)
    pairs, counts = np.unique(distinct, return_counts=True)
    event_channel, reference_channel = pairs // width, pairs % width
    order = np.lexsort((reference_channel, -counts, event_channel))
    best = order[np.diff(event_channel[order], prepend=-1) > 0]
    for channel, number, count in zip(
        event_channel[best], reference_channel[best], counts[best], strict=True
    ):
        times = np.sort(predicted[events.channel == channel])
        others = np.sort(reference.times[reference.channels == number])
        shared = min(_count_within(times, others), _count_within(others, times))
        if count >= max(_MIN_SHARED_FRACTION * shared, min(_MIN_OPERATIONS, len(times), len(others))):
            joined[channel - lowest] = number
    return joined


def _count_within(times: Floats, others: Floats) -> int:
    """Count the times (in order) between the first and the last of `others`."""
    low, high = np.searchsorted(times, (others[0] - SKEW_NS, others[-1] + SKEW_NS))
    return int(high - low)
