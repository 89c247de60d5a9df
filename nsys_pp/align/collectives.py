"""Which operations of different ranks are one.

One clock domain after the other is laid onto a common timeline. A collective ends on all its
ranks together, and so do those before and after it: gaps between ends agree where times do not
(`nsys_pp.align.votes`, `nsys_pp.align.pairs`). What a domain has of its own joins the timeline,
for those that come after.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nsys_pp.align.events import RECEIVE, SEND, SEND_RECEIVE, Events
from nsys_pp.align.lines import Line
from nsys_pp.align.pairs import Pairs, Reference, pair_events, refer
from nsys_pp.align.votes import find_offset

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Which events are one operation, and roughly where each domain lies.

    Attributes:
        instance: Of each event; events of one instance ended together (or are one message).
            -1 where an event stands alone.
        component: Of each domain; only domains of one component can be compared.
        lines: Of each domain: what places it on its component's timeline.
    """

    instance: Int64s
    component: Int64s
    lines: list[Line]


def match_events(events: Events, domain_count: int) -> Matches:
    """Lay domain after domain onto a common timeline, those with most operations first.

    Args:
        events: Of all domains.
        domain_count: How many domains there are, with events or without.

    Returns:
        The matches; a domain that shares nothing is a component of its own.
    """
    rows = np.argsort(events.domain, kind="stable")
    bounds = np.searchsorted(events.domain[rows], np.arange(domain_count + 1))
    rows_of = [rows[bounds[d] : bounds[d + 1]] for d in range(domain_count)]
    waiting = sorted(range(domain_count), key=lambda d: (-len(rows_of[d]), d))
    timelines: list[_Timeline] = []
    instance = np.full(len(events), -1, dtype=np.int64)
    while waiting:
        timeline = _Timeline(events=events, instance=instance)
        seed = waiting.pop(0)
        timeline.add(seed, rows_of[seed], events.take(rows_of[seed]), Line())
        while placed := [domain for domain in waiting if timeline.place(domain, rows_of)]:
            waiting = [domain for domain in waiting if domain not in placed]
        timelines.append(timeline)
    component = np.empty(domain_count, dtype=np.int64)
    lines = [Line()] * domain_count
    for number, timeline in enumerate(timelines):
        for domain, line in timeline.lines.items():
            component[domain], lines[domain] = number, line
    sizes = np.bincount(instance, minlength=1)
    return Matches(
        instance=np.where(sizes[instance] > 1, instance, -1) if len(instance) else instance,
        component=component,
        lines=lines,
    )


@dataclass(slots=True)
class _Timeline:
    """The operations of all domains that are placed, on one clock.

    `instance` is shared by all timelines: an operation is numbered by the row of the event that
    brought it.
    """

    events: Events
    instance: Int64s
    lines: dict[int, Line] = field(default_factory=dict)  # domain -> its place
    known: Reference | None = None

    def place(self, domain: int, rows_of: list[Int64s]) -> bool:
        """Find a domain's place by collectives, else by messages, and add it; false if it shares nothing."""
        own = self.events.take(rows_of[domain])
        if self.known is None:
            return False
        reference = self.known.take(np.isin(self.known.key, np.unique(own.key)))
        is_message = np.isin(own.kind, (SEND, RECEIVE, SEND_RECEIVE))
        messages = np.unique(own.key[is_message])
        for usable, told in (
            (~is_message, ~np.isin(reference.key, messages)),
            (is_message, np.isin(reference.key, messages)),
        ):
            if usable.any() and told.any():
                line = find_offset(own.take(usable), reference.take(told))
                if line is not None:
                    self.add(domain, rows_of[domain], own, line, reference)
                    return True
        return False

    def add(
        self, domain: int, rows: Int64s, own: Events, line: Line, reference: Reference | None = None
    ) -> None:
        """Let a domain's operations join those that they are, and be new ones otherwise."""
        self.lines[domain] = line
        channels = own.channel.copy()  # a new channel of the timeline is numbered by who brought it
        instances = rows.copy()
        if reference is not None:
            pairs = _distinct(pair_events(own, reference, line), own, reference)
            instances[pairs.own] = reference.instances[pairs.reference]
            mine, first = np.unique(own.channel[pairs.own], return_index=True)
            joined = np.isin(own.channel, mine)
            at = np.searchsorted(mine, own.channel[joined])
            channels[joined] = reference.channels[pairs.reference[first[at]]]
        self.instance[rows] = instances
        fresh = instances == rows
        new = refer(own.take(fresh), (own.end + line.at(own.end))[fresh], channels[fresh], rows[fresh])
        self.known = new if self.known is None else self.known.insert(new)


def _distinct(pairs: Pairs, own: Events, reference: Reference) -> Pairs:
    """Let each operation of the reference be only one of each channel."""
    both = np.stack((own.channel[pairs.own], reference.instances[pairs.reference]))
    _, first = np.unique(both, axis=1, return_index=True)
    first.sort()
    return Pairs(own=pairs.own[first], reference=pairs.reference[first])
