"""Pairs of equal operations of a domain and a timeline, for a given line between their clocks, and their evidence.

Proximity of two operations alone is weak evidence where operations are dense, and independent ranks that do the same
at the same time agree to tens of microseconds. The members of one collective agree to some microseconds, throughout
two channels. The evidence of two channels is the logarithm of a likelihood ratio: how much better "they are one"
explains the distances of their operations than "they have nothing to do with each other".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from nsys_pp.alignment.near import MISSING, WEIGHING, Comparison, Near
from nsys_pp.arrays.members import list_members, mark_members
from nsys_pp.arrays.types import Floats, Int64s

SCATTERS_NS = (1_500.0, 4_000.0, 12_000.0, 30_000.0)
"""Scatters of the ends of one operation that are expected, where it is not known better."""

TOGETHER_NS = 20_000.0
"""Ends of one operation are mostly closer than this, and those of unrelated ones in lockstep seldom."""

MAX_CONTRADICTION = 30.0
"""Most evidence against a line by the collectives of one communicator."""


class Pairs(Struct, frozen=True, kw_only=True):
    """Pairs of an event of a domain and a row of the reference for the same operation.

    Each event and, in each channel, each operation occurs at most once.

    Attributes:
        event_row: Row of the event, ascending.
        reference_row: Row of the reference.
        scatter_ns: Scatter of the pairs of the event's channel.
        evidence: Logarithm of the likelihood ratio of all channels together.
        exchange_evidence: The same, of the channels of messages that are not known to be sends or receives.
        sharpest_ns: Least scatter of the channels with enough pairs to measure it; infinite without any.
    """

    event_row: Int64s
    reference_row: Int64s
    scatter_ns: Floats
    evidence: float
    exchange_evidence: float
    sharpest_ns: float


def pair_events(comparison: Comparison, near: Near, scatter_ns: float) -> Pairs:
    """Pair events with the operations that they are.

    Each channel of the domain is paired with one channel of the timeline, the one with most evidence; a channel without
    evidence is not paired. Channels of one communicator that overlap in time but have no operation at the same
    time are evidence against the line.

    Args:
        comparison: Events and operations.
        near: Pairs near each other.
        scatter_ns: Expected scatter of the ends of one operation.
    """
    links, count, squares = len(near.event_channel), near.count, near.squares
    # operations of channels in lockstep are near each other together, not one by one
    independent = np.minimum(1.0, (8 + 2 * np.sqrt(count)) / np.maximum(count, 1))
    closeness = np.bincount(near.link, _weigh(near.residual_ns, scatter_ns), links) * independent
    scatter = np.sqrt((squares + WEIGHING.prior_count * scatter_ns**2) / (count + WEIGHING.prior_count))
    first = np.log(1 / (2 * WEIGHING.lockstep * near.rate * np.maximum(scatter, scatter_ns)))
    evidence = (closeness + np.maximum(first, 0.0) + near.missing) * near.independent
    chosen = _choose_channels(evidence, near.event_channel)
    against = contradict(comparison, near.predicted, near.event_channel[chosen])
    rows = np.flatnonzero(chosen[near.link])  # by event, as those of `near`
    is_measured = chosen & (
        (count >= WEIGHING.measurable) | ((count >= WEIGHING.measurable_whole) & (near.missing == 0))
    )
    return Pairs(
        event_row=near.event_row[rows],
        reference_row=near.reference_row[rows],
        scatter_ns=scatter[near.link[rows]],
        evidence=float(evidence[chosen].sum()) + against,
        exchange_evidence=float(evidence[chosen & comparison.finder.is_exchange[near.event_channel]].sum()),
        sharpest_ns=float(np.sqrt(squares[is_measured] / count[is_measured]).min(initial=np.inf)),
    )


def _weigh(residual: Floats, scatter_ns: float) -> Floats:
    """Return the log likelihood ratio of residuals: of one collective, against two in lockstep.

    The first has a t distribution with three degrees of freedom, the second a scatter of unknown size, from
    microseconds to milliseconds (a distribution that is uniform in the logarithm).
    """
    own = np.log(0.3675 / scatter_ns) - 2 * np.log1p((residual / scatter_ns) ** 2 / 3)
    lockstep = -np.log(2 * WEIGHING.lockstep * np.maximum(np.abs(residual), scatter_ns))
    return np.asarray(own - lockstep)


def _choose_channels(evidence: Floats, event_channel: Int64s) -> npt.NDArray[np.bool_]:
    """Choose the channel of the timeline with most evidence, more than none, for each channel of the domain."""
    order = np.lexsort((-evidence, event_channel))
    best = order[np.diff(event_channel[order], prepend=-1) != 0]
    chosen = np.zeros(len(evidence), dtype=bool)
    chosen[best[evidence[best] > 0]] = True
    return chosen


def contradict(comparison: Comparison, predicted: Floats, paired: Int64s) -> float:
    """Return the evidence against a line by collectives of one communicator that were recorded at other times.

    Args:
        comparison: Events and operations.
        predicted: Times of the events on the timeline.
        paired: Channels of the domain that were paired.
    """
    events, reference = comparison.events, comparison.reference
    if not comparison.has_communicator:
        return 0.0
    is_tested = (
        (events.has_communicator > 0) & ~events.is_message & ~mark_members(comparison.finder.channel, paired)
    )
    against = 0.0
    for key in list_members(events.key[is_tested]).tolist():
        first, stop = reference.of_key(key)
        own, times = predicted[is_tested & (events.key == key)], reference.times[first:stop]
        if len(times):
            since, until = max(own.min(), times[0]), min(own.max(), times[-1])
            low, high = np.searchsorted(times, since), np.searchsorted(times, until, side="right")
            own_count = int(np.count_nonzero((own >= since) & (own <= until)))
            both = min(own_count, max(int(high) - int(low), 0))
            against -= min(MISSING * both, MAX_CONTRADICTION)
    return against
