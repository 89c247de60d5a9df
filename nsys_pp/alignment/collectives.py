"""Which operations of different ranks are one.

One clock domain after the other is laid onto a common timeline. A collective ends on all its
ranks together, and so do those before and after it: gaps between ends agree where times do not
(`nsys_pp.alignment.votes`, `nsys_pp.alignment.pairs`). What a domain has of its own joins the timeline,
for those that come after.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.pairs import Pairs, Reference, keep_consensus, pair_events, refer
from nsys_pp.alignment.votes import Found, find_offset
from nsys_pp.arrays.types import Int64s

_CLEAR = 15.0  # evidence that leaves no doubt
_MOST_COMPARED = 8  # timelines that another is compared with


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


def match_events(events: Events, machine: Int64s) -> Matches:
    """Lay domain after domain onto a common timeline, the clearest first.

    Args:
        events: Of all domains.
        machine: Of each domain, with events or without, as a number.

    Returns:
        The matches; a domain that shares nothing is a component of its own.
    """
    domain_count = len(machine)
    rows = np.argsort(events.domain, kind="stable")
    bounds = np.searchsorted(events.domain[rows], np.arange(domain_count + 1))
    rows_of = [rows[bounds[d] : bounds[d + 1]] for d in range(domain_count)]
    waiting = sorted(range(domain_count), key=lambda d: (-len(rows_of[d]), d))
    timelines: list[_Timeline] = []
    instance = np.full(len(events), -1, dtype=np.int64)
    while waiting:
        timeline = _Timeline(events=events, instance=instance, machine=machine, channel=events.channel.copy())
        seed = waiting.pop(0)
        timeline.add(seed, rows_of[seed], events.take(rows_of[seed]), Line())
        while placed := timeline.place_any(waiting, rows_of):
            waiting = [domain for domain in waiting if domain not in placed]
        timelines.append(timeline)
    for by_messages in (False, True):
        before = len(timelines) + 1
        while len(timelines) < before:
            before = len(timelines)
            timelines = _join(timelines, rows_of, by_messages=by_messages)
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
    machine: Int64s  # of each domain
    channel: Int64s  # of each event, here
    lines: dict[int, Line] = field(default_factory=dict)  # domain -> its place
    known: Reference | None = None

    def place_any(self, waiting: list[int], rows_of: list[Int64s]) -> list[int]:
        """Add the domains of which it is clear where they lie, or else the one of which it is clearest."""
        found: dict[int, Found] = {}
        clear = []
        for domain in waiting:
            own = self.events.take(rows_of[domain])
            place = self._find(own)
            if place is None:
                continue
            found[domain] = place
            if place.evidence >= _CLEAR:
                self.add(domain, rows_of[domain], own, place.line)
                clear.append(domain)
        if clear or not found:
            return clear
        best = max(found, key=lambda domain: found[domain].evidence)
        self.add(best, rows_of[best], self.events.take(rows_of[best]), found[best].line)
        return [best]

    def _find(self, own: Events) -> Found | None:
        """Find a domain's place by its collectives; None if it shares none.

        Messages only speak for or against: their ends lie apart by the travel where they were sent from
        a buffer.
        """
        is_message = own.is_message
        first = own.take(~is_message)
        told = self._refer(first.key)
        if not len(first) or not len(told):
            return None
        messages = own.take(is_message)
        number = self.machine[own.domain[0]]
        beside = [line for domain, line in self.lines.items() if self.machine[domain] == number]
        also = (messages, self._refer(messages.key))
        return find_offset(first, told, also, beside[0] if beside else None)

    def find_timeline(self, other: _Timeline, *, by_messages: bool) -> Found | None:
        """Find the place of another timeline; None if they share nothing of the kind."""
        own, whole = other.settle(), self.settle()
        own = own.take(own.is_message == by_messages)
        whole = whole.take(np.isin(whole.key, np.unique(own.key)))
        if not len(own) or not len(whole):
            return None
        return find_offset(own, refer(whole, whole.end, whole.channel, np.arange(len(whole))))

    def settle(self) -> Events:
        """Return each operation once, at the middle of what its members say."""
        rows = np.flatnonzero(np.isin(self.events.domain, list(self.lines)))
        times = np.empty(len(rows))
        for domain, line in self.lines.items():
            mine = self.events.domain[rows] == domain
            times[mine] = self.events.end[rows[mine]] + line.at(self.events.end[rows[mine]])
        instances, place, counts = np.unique(self.instance[rows], return_inverse=True, return_counts=True)
        order = np.lexsort((times, place))
        middle = np.cumsum(counts) - counts + (counts - 1) // 2
        settled = self.events.take(instances)
        return replace(settled, end=times[order][middle], channel=self.channel[instances])

    def _refer(self, keys: Int64s) -> Reference:
        assert self.known is not None
        return self.known.take(np.isin(self.known.key, np.unique(keys)))

    def add(self, domain: int, rows: Int64s, own: Events, line: Line) -> None:
        """Let a domain's operations join those that they are, and be new ones otherwise."""
        self.lines[domain] = line
        channels = own.channel.copy()  # a new channel of the timeline is numbered by who brought it
        instances = rows.copy()
        if self.known is not None:
            reference = self._refer(own.key)
            pairs = keep_consensus(pair_events(own, reference, line), own, reference, line)
            pairs = _distinct(pairs, own, reference)
            instances[pairs.own] = reference.instances[pairs.reference]
            mine, first = np.unique(own.channel[pairs.own], return_index=True)
            joined = np.isin(own.channel, mine)
            at = np.searchsorted(mine, own.channel[joined])
            channels[joined] = reference.channels[pairs.reference[first[at]]]
        self.instance[rows] = instances
        self.channel[rows] = channels
        fresh = instances == rows
        new = refer(own.take(fresh), (own.end + line.at(own.end))[fresh], channels[fresh], rows[fresh])
        self.known = new if self.known is None else self.known.insert(new)


def _join(timelines: list[_Timeline], rows_of: list[Int64s], *, by_messages: bool) -> list[_Timeline]:
    """Lay whole timelines onto the larger ones: what many domains saw is known better than what one did."""
    kept: list[_Timeline] = []
    for timeline in sorted(timelines, key=lambda one: -len(one.lines)):
        for larger in kept[:_MOST_COMPARED]:
            found = larger.find_timeline(timeline, by_messages=by_messages)
            if found is not None:
                for domain, line in timeline.lines.items():
                    own = timeline.events.take(rows_of[domain])
                    larger.add(domain, rows_of[domain], own, line.then(found.line))
                break
        else:
            kept.append(timeline)
    return kept


def _distinct(pairs: Pairs, own: Events, reference: Reference) -> Pairs:
    """Let each operation of the reference be only one of each channel."""
    both = np.stack((own.channel[pairs.own], reference.instances[pairs.reference]))
    _, first = np.unique(both, axis=1, return_index=True)
    first.sort()
    return Pairs(own=pairs.own[first], reference=pairs.reference[first])
