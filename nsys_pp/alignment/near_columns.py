"""Search of operations near events by numpy: the definition of the compiled one (`nsys_pp.arrays.near_finder`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.events import RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.near_finder import NearPairs
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Bools, Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

BEYOND_NS = 1_000.0
"""Before and after the operations of each key in `ColumnFinder.times`."""

_MAX_SLOTS = 10_000_000  # of a table of rows by pair of channels


class ColumnFinder(Struct, frozen=True, kw_only=True):
    """Events of a domain and operations of a timeline, and values that do not depend on the line between their clocks.

    Attributes:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
        channel: Number of each event's channel, from 0.
        is_message: Whether each channel is one of messages.
        is_exchange: Whether each channel has messages that are not known to be sends or receives.
        reference_channel: Number of each operation's channel, from 0.
        share: 1 by the number of channels with an event of this key at the time of each event: tensor slices do the same together.
        comparable: Rows of the events that have a key of the timeline.
        key_base: Key of each comparable event as an offset to `times`.
        times: Times of the operations, those of each key beyond those of the key before.
        limits: First and last time of an operation.
    """

    events: Events
    reference: Reference
    channel: Int64s
    is_message: Bools
    is_exchange: Bools
    reference_channel: Int64s
    share: Floats
    comparable: Int64s
    key_base: Floats
    times: Floats
    limits: tuple[float, float]

    @property
    def other_channel_count(self) -> int:
        """Return the number of channels of the operations."""
        return int(self.reference_channel.max(initial=-1)) + 1

    def find(self, line: tuple[float, float, float], tolerance: float, margin: float) -> NearPairs:
        """Find the pairs near each other that are the nearest of each other, as `NearFinder.find`."""
        events, reference = self.events, self.reference
        offset, rate, center = line
        predicted = events.end + (offset + rate * (events.end - center))
        event_row, reference_row = self._list_near_pairs(predicted, tolerance)
        width = max(self.other_channel_count, 1)
        combined = self.channel[event_row] * width + self.reference_channel[reference_row]
        numbers, link = np.unique(combined, return_inverse=True)
        distance = np.abs(reference.times[reference_row] - predicted[event_row])
        kept = np.sort(_keep_mutual(link, event_row, reference_row, distance))
        event_row, reference_row, link = event_row[kept], reference_row[kept], link[kept]
        residual = reference.times[reference_row] - predicted[event_row]
        since = max(float(predicted.min(initial=np.inf)), self.limits[0]) - margin
        until = min(float(predicted.max(initial=-np.inf)), self.limits[1]) + margin
        own_within, others_within = (
            np.bincount(
                channel[(times >= since) & (times <= until)], minlength=int(channel.max(initial=-1)) + 1
            )
            for channel, times in ((self.channel, predicted), (self.reference_channel, reference.times))
        )
        return NearPairs(
            point=event_row,
            other=reference_row,
            residual=residual,
            link=link,
            numbers=numbers,
            count=np.bincount(link, minlength=len(numbers)),
            squares=np.asarray(np.bincount(link, residual**2, len(numbers)), dtype=np.float64),
            share=np.asarray(np.bincount(link, self.share[event_row], len(numbers)), dtype=np.float64),
            predicted=predicted,
            within=until - since,
            own_within=own_within,
            others_within=others_within,
        )

    def _list_near_pairs(self, predicted: Floats, tolerance_ns: float) -> tuple[Int64s, Int64s]:
        """List all pairs of equal key within the tolerance, without two sends or two receives."""
        first, last = self.limits
        times = predicted[self.comparable]
        low = np.clip(times - tolerance_ns, first - BEYOND_NS, last + BEYOND_NS) + self.key_base
        high = np.clip(times + tolerance_ns, first - BEYOND_NS, last + BEYOND_NS) + self.key_base
        low_row = np.searchsorted(self.times, low)
        high_row = np.searchsorted(self.times, high, side="right")
        event_row = np.repeat(self.comparable, high_row - low_row)
        reference_row = expand_windows(low_row, high_row)
        kind = self.events.kind[event_row]
        is_same_side = ((kind == SEND) | (kind == RECEIVE)) & (kind == self.reference.kind[reference_row])
        return event_row[~is_same_side], reference_row[~is_same_side]


def prepare_columns(events: Events, reference: Reference) -> ColumnFinder:
    """Prepare the search."""
    first, channel = find_distinct(events.channel)
    sections = np.flatnonzero(np.diff(reference.key, prepend=-1))
    keys, number = reference.key[sections], find_distinct(reference.key)[1]
    limits = (float(reference.times.min()), float(reference.times.max())) if len(reference) else (0.0, 0.0)
    stride = limits[1] - limits[0] + 4 * BEYOND_NS
    comparable = np.flatnonzero(mark_members(events.key, keys))
    key_base = np.searchsorted(keys, events.key[comparable]) * stride - limits[0]
    return ColumnFinder(
        events=events,
        reference=reference,
        channel=channel,
        is_message=np.bincount(channel[events.is_message], minlength=len(first)) > 0,
        is_exchange=np.bincount(channel[events.kind == SEND_RECEIVE], minlength=len(first)) > 0,
        reference_channel=find_distinct(reference.channels)[1],
        share=1 / _count_repeats(events),
        comparable=comparable,
        key_base=np.asarray(key_base, dtype=np.float64),
        times=reference.times - limits[0] + number * stride,
        limits=limits,
    )


def _keep_mutual(combined: Int64s, event_row: Int64s, reference_row: Int64s, distance: Floats) -> Int64s:
    """List the pairs in which each is the nearest of the other, among the operations of two channels."""
    by_distance = np.argsort(distance, kind="stable")
    for rows in (event_row, reference_row):
        width = int(rows.max(initial=0)) + 1
        by_distance = by_distance[_mark_first((combined * width + rows)[by_distance])]
    return by_distance


def _mark_first(values: Int64s) -> npt.NDArray[np.bool_]:
    """Return the mask of the first occurrence of each value."""
    size = int(values.max(initial=-1)) + 1
    if size > _MAX_SLOTS:
        is_first = np.zeros(len(values), dtype=bool)
        is_first[np.unique(values, return_index=True)[1]] = True
        return is_first
    rows = np.arange(len(values))
    first = np.empty(size, dtype=np.int64)
    first[values[::-1]] = rows[::-1]
    return np.asarray(first[values] == rows)


def _count_repeats(events: Events) -> Int64s:
    """Count the channels that have an event of this key at the same time: see `ColumnFinder.share`."""
    apart = 2 * SKEW_NS + float(np.ptp(events.end)) if len(events) else 1.0
    times = events.end - events.end.min(initial=0.0) + find_distinct(events.key)[1] * apart
    order = np.argsort(times)  # of equal times in any order
    times = times[order]
    low = np.searchsorted(times, times - SKEW_NS)
    high = np.searchsorted(times, times + SKEW_NS, side="right")
    repeats = np.empty(len(events), dtype=np.int64)
    repeats[order] = high - low
    return repeats
