"""Operations of a domain and of a timeline that are near each other, for many lines between their clocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.events import RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.core import load_core
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.near_finder import NearFinder, NearPairs, Weighing
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.clock import SKEW_NS

MISSING = 2.0  # evidence against two channels, for each operation that only one of them has
WEIGHING = Weighing(
    prior_count=2.0,  # number of operations that the expected scatter counts as
    lockstep=9.2,  # logarithm of the range of scatters of unrelated operations: 1 us to 10 ms
    missing=MISSING,
    missing_message=0.2,  # the same for messages: a stream can have messages with several peers
    measurable=6,  # pairs that a channel's scatter is measured by
    measurable_whole=3,  # the same, where each has all operations of the other
    min_sharp=3,  # operations that the scatter of a first line is measured by
    wide=75_000.0,  # the same, of fewer operations
    first_scatter=5_000.0,  # expected before any is known
)
"""How the evidence of two channels is weighed (`nsys_pp.alignment.pairs`, `nsys_pp.alignment.evidence`)."""

_GAP_NS = 1_000.0  # before and after the operations of each key in `Comparison.times`
_MAX_SLOTS = 10_000_000  # of a table of rows by pair of channels


class Comparison(Struct, frozen=True, kw_only=True):
    """Events of a domain and operations of a timeline, and values that do not depend on the line between their clocks.

    Attributes:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
        channel: Number of each event's channel, from 0.
        channel_is_message: Whether each channel is one of messages.
        channel_is_exchange: Whether each channel has messages that are not known to be sends or receives.
        reference_channel: Number of each operation's channel, from 0.
        repeats: Number of channels with an event of this key at the time of each event: tensor slices do the same together.
        has_communicator: Whether NCCL recorded the communicator of an event.
        comparable: Rows of the events that have a key of the timeline.
        key_base: Key of each comparable event as an offset to `times`.
        times: Times of the operations, those of each key beyond those of the key before.
        limits: First and last time of an operation.
        finder: The compiled search of `find_near`; None without it.
    """

    events: Events
    reference: Reference
    channel: Int64s
    channel_is_message: npt.NDArray[np.bool_]
    channel_is_exchange: npt.NDArray[np.bool_]
    reference_channel: Int64s
    repeats: Int64s
    has_communicator: bool
    comparable: Int64s
    key_base: Floats
    times: Floats
    limits: tuple[float, float]
    finder: NearFinder | None


def prepare(events: Events, reference: Reference) -> Comparison:
    """Prepare the comparison of a domain with a timeline."""
    first, channel = find_distinct(events.channel)
    channel_is_message = np.bincount(channel[events.is_message], minlength=len(first)) > 0
    is_exchange = events.kind == SEND_RECEIVE
    channel_is_exchange = np.bincount(channel[is_exchange], minlength=len(first)) > 0
    reference_channel = find_distinct(reference.channels)[1]
    sections = np.append(np.flatnonzero(np.diff(reference.key, prepend=-1)), len(reference))
    number = np.repeat(np.arange(len(sections) - 1), np.diff(sections))
    keys = reference.key[sections[:-1]]
    limits = (float(reference.times.min()), float(reference.times.max())) if len(reference) else (0.0, 0.0)
    stride = limits[1] - limits[0] + 4 * _GAP_NS
    comparable = np.flatnonzero(mark_members(events.key, keys))
    key_base = np.asarray(
        np.searchsorted(keys, events.key[comparable]) * stride - limits[0], dtype=np.float64
    )
    times = reference.times - limits[0] + number * stride
    repeats = _count_repeats(events)
    core = load_core()
    finder = None
    if core is not None:
        base = np.full(len(events), np.nan)
        base[comparable] = key_base
        finder = NearFinder(
            core,
            weighing=WEIGHING,
            is_message=channel_is_message,
            is_exchange=channel_is_exchange,
            sections=sections,
            channel=channel,
            kind=np.where((events.kind == SEND) | (events.kind == RECEIVE), events.kind, -1),
            end=events.end,
            base=base,
            share=1 / repeats,
            times=times,
            other_time=reference.times,
            other_channel=reference_channel,
            other_kind=reference.kind,
            limits=limits,
            beyond=_GAP_NS,
        )
    return Comparison(
        events=events,
        reference=reference,
        channel=channel,
        channel_is_message=channel_is_message,
        channel_is_exchange=channel_is_exchange,
        reference_channel=reference_channel,
        repeats=repeats,
        has_communicator=bool(events.has_communicator.any()),
        comparable=comparable,
        key_base=key_base,
        times=times,
        limits=limits,
        finder=finder,
    )


class Near(Struct, frozen=True, kw_only=True):
    """Pairs of an event of a domain and an operation of a timeline that are near each other by a line.

    In each pair of channels, each event and each operation occurs at most once.

    Attributes:
        event_row: Row of the event, ascending.
        reference_row: Row of the reference.
        residual_ns: Time of the operation minus predicted time of the event.
        link: Number of the pair of channels.
        event_channel: Channel of the domain, of each pair of channels; by its number in `Comparison`.
        predicted: Predicted times of all events.
        count: Number of pairs, of each pair of channels.
        squares: Sum of the squared residuals, of each pair of channels.
        rate: Operations per ns while both were recorded, of the denser one of each pair of channels.
        missing: Evidence of the operations that only one has, of each pair of channels.
        independent: Share of the pairs that are not repeated at the same time in other channels, of each pair of channels.
        weight: Weight of a pair in a vote, of each pair of channels: a channel with many operations has more weight, but less than in proportion,
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


def find_near(comparison: Comparison, line: Line, tolerance_ns: float) -> Near:
    """Find the operations near events by a line.

    Args:
        comparison: Events and operations.
        line: Correction from the domain to the timeline.
        tolerance_ns: Largest distance of a pair.
    """
    found = _search(comparison, line, tolerance_ns)
    width = int(comparison.reference_channel.max(initial=0)) + 1
    event_channel, reference_channel = np.divmod(found.numbers, width)
    own_count = np.maximum(found.own_within[event_channel], found.count)
    other_count = np.maximum(found.others_within[reference_channel], found.count)
    only_one = (own_count + other_count - 2 * found.count).astype(np.float64)
    is_message = comparison.channel_is_message[event_channel]
    # stages in the middle of a pipeline share half of their messages with each neighbour
    unexplained = np.where(is_message, np.maximum(only_one - found.count, 0.0), only_one)
    return Near(
        event_row=found.point,
        reference_row=found.other,
        residual_ns=found.residual,
        link=found.link,
        event_channel=event_channel,
        predicted=found.predicted,
        count=found.count,
        squares=found.squares,
        rate=np.maximum(own_count, other_count) / max(found.within, 1.0),
        missing=-np.where(is_message, WEIGHING.missing_message, MISSING) * unexplained,
        independent=found.share / found.count,
        weight=np.sqrt(found.count) / np.maximum(found.count + only_one, 1),
    )


def _search(comparison: Comparison, line: Line, tolerance_ns: float) -> NearPairs:
    """Find the pairs near each other that are the nearest of each other, among the operations of two channels."""
    if comparison.finder is not None:
        return comparison.finder.find((line.offset_ns, line.rate, line.center_ns), tolerance_ns, SKEW_NS)
    events, reference = comparison.events, comparison.reference
    predicted = events.end + line.at(events.end)
    event_row, reference_row = _list_near_pairs(comparison, predicted, tolerance_ns)
    width = int(comparison.reference_channel.max(initial=0)) + 1
    combined = comparison.channel[event_row] * width + comparison.reference_channel[reference_row]
    numbers, link = np.unique(combined, return_inverse=True)
    distance = np.abs(reference.times[reference_row] - predicted[event_row])
    kept = np.sort(_keep_mutual(link, event_row, reference_row, distance))
    event_row, reference_row, link = event_row[kept], reference_row[kept], link[kept]
    residual = reference.times[reference_row] - predicted[event_row]
    since = max(float(predicted.min(initial=np.inf)), comparison.limits[0]) - SKEW_NS
    until = min(float(predicted.max(initial=-np.inf)), comparison.limits[1]) + SKEW_NS
    own_within, others_within = (
        np.bincount(channel[(times >= since) & (times <= until)], minlength=int(channel.max(initial=-1)) + 1)
        for channel, times in (
            (comparison.channel, predicted),
            (comparison.reference_channel, reference.times),
        )
    )
    return NearPairs(
        point=event_row,
        other=reference_row,
        residual=residual,
        link=link,
        numbers=numbers,
        count=np.bincount(link, minlength=len(numbers)),
        squares=np.asarray(np.bincount(link, residual**2, len(numbers)), dtype=np.float64),
        share=np.asarray(
            np.bincount(link, 1 / comparison.repeats[event_row], len(numbers)), dtype=np.float64
        ),
        predicted=predicted,
        within=until - since,
        own_within=own_within,
        others_within=others_within,
    )


def _list_near_pairs(comparison: Comparison, predicted: Floats, tolerance_ns: float) -> tuple[Int64s, Int64s]:
    """List all pairs of equal key within the tolerance, without two sends or two receives."""
    first, last = comparison.limits
    times = predicted[comparison.comparable]
    low = np.clip(times - tolerance_ns, first - _GAP_NS, last + _GAP_NS) + comparison.key_base
    high = np.clip(times + tolerance_ns, first - _GAP_NS, last + _GAP_NS) + comparison.key_base
    low_row = np.searchsorted(comparison.times, low)
    high_row = np.searchsorted(comparison.times, high, side="right")
    event_row = np.repeat(comparison.comparable, high_row - low_row)
    reference_row = expand_windows(low_row, high_row)
    kind = comparison.events.kind[event_row]
    is_same_side = ((kind == SEND) | (kind == RECEIVE)) & (kind == comparison.reference.kind[reference_row])
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
    """Count the channels that have an event of this key at the same time: see `Comparison.repeats`."""
    apart = 2 * SKEW_NS + float(np.ptp(events.end)) if len(events) else 1.0
    times = events.end - events.end.min(initial=0.0) + find_distinct(events.key)[1] * apart
    order = np.argsort(times)  # of equal times in any order
    times = times[order]
    low = np.searchsorted(times, times - SKEW_NS)
    high = np.searchsorted(times, times + SKEW_NS, side="right")
    repeats = np.empty(len(events), dtype=np.int64)
    repeats[order] = high - low
    return repeats
