"""Operations of a domain and of a timeline that are near each other, for many lines between their clocks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.alignment.events import RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.near_columns import BEYOND_NS, ColumnFinder, prepare_columns
from nsys_pp.alignment.reference import Reference
from nsys_pp.arrays.core import Core, load_core
from nsys_pp.arrays.near_finder import NearFinder, Weighing
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


class Comparison(Struct, frozen=True, kw_only=True):
    """Events of a domain and operations of a timeline.

    Attributes:
        events: Events of one domain, or of several with their corrections applied.
        reference: Operations of the timeline.
        has_communicator: Whether NCCL recorded the communicator of an event.
        finder: The search of `find_near`, compiled if it can be.
    """

    events: Events
    reference: Reference
    has_communicator: bool
    finder: NearFinder | ColumnFinder

    def share(self, threads: int) -> list[Comparison]:
        """Return the comparison for each of several threads; for one alone where numpy compares."""
        finder = self.finder
        if not isinstance(finder, NearFinder):
            return [self]
        return [self, *(replace(self, finder=finder.twin()) for _ in range(threads - 1))]


def prepare(events: Events, reference: Reference) -> Comparison:
    """Prepare the comparison of a domain with a timeline."""
    core = load_core()
    return Comparison(
        events=events,
        reference=reference,
        has_communicator=bool(events.has_communicator.any()),
        finder=prepare_columns(events, reference) if core is None else _compile(core, events, reference),
    )


def _compile(core: Core, events: Events, reference: Reference) -> NearFinder:
    return NearFinder(
        core,
        key=events.key,
        channel=events.channel,
        kind=events.kind,
        end=events.end,
        other_key=reference.key,
        other_channel=reference.channels,
        other_kind=reference.kind,
        other_time=reference.times,
        send=SEND,
        receive=RECEIVE,
        exchange=SEND_RECEIVE,
        beyond=BEYOND_NS,
        together=SKEW_NS,
        weighing=WEIGHING,
    )


class Near(Struct, frozen=True, kw_only=True):
    """Pairs of an event of a domain and an operation of a timeline that are near each other by a line.

    In each pair of channels, each event and each operation occurs at most once.

    Attributes:
        event_row: Row of the event, ascending.
        reference_row: Row of the reference.
        residual_ns: Time of the operation minus predicted time of the event.
        link: Number of the pair of channels.
        event_channel: Channel of the domain, of each pair of channels; by its number in `Comparison.finder`.
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
    finder = comparison.finder
    found = finder.find((line.offset_ns, line.rate, line.center_ns), tolerance_ns, SKEW_NS)
    event_channel, reference_channel = np.divmod(found.numbers, max(finder.other_channel_count, 1))
    own_count = np.maximum(found.own_within[event_channel], found.count)
    other_count = np.maximum(found.others_within[reference_channel], found.count)
    only_one = (own_count + other_count - 2 * found.count).astype(np.float64)
    is_message = finder.is_message[event_channel]
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
