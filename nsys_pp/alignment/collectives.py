"""Matching of shared operations (collectives and messages) between clock domains.

Clock domains are added to a common timeline one by one. A collective ends on all its ranks together, and so do
the collectives before and after it: gaps between ends agree although clocks differ (`nsys_pp.alignment.votes`,
`nsys_pp.alignment.pairs`). Operations that only the new domain has are added to the timeline, for the domains
that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.pairs import Pairs, Reference, build_reference, keep_consensus, pair_events
from nsys_pp.alignment.votes import Candidate, find_offset
from nsys_pp.arrays.types import Int64s

_CLEAR_EVIDENCE = 15.0  # enough to add several domains in one pass
_MAX_COMPARED = 8  # number of larger timelines that each timeline is compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Events matched to operations, with an approximate line of each domain.

    Attributes:
        instance: Operation of each event, -1 without another member. Events of one instance ended together
            (or are one message).
        component: Component of each domain; only domains of one component can be compared.
        lines: Correction of each domain onto the timeline of its component.
    """

    instance: Int64s
    component: Int64s
    lines: list[Line]


def match_events(events: Events, machine: Int64s) -> Matches:
    """Match the events of all domains, adding domains to common timelines in order of evidence.

    Args:
        events: Events of all domains.
        machine: Machine number of each domain, with events or without.

    Returns:
        The matches; a domain without shared operations is a component by itself.
    """
    domain_count = len(machine)
    rows = np.argsort(events.domain, kind="stable")
    bounds = np.searchsorted(events.domain[rows], np.arange(domain_count + 1))
    rows_of = [rows[bounds[d] : bounds[d + 1]] for d in range(domain_count)]
    remaining = sorted(range(domain_count), key=lambda d: (-len(rows_of[d]), d))
    timelines: list[_Timeline] = []
    instance = np.full(len(events), -1, dtype=np.int64)
    while remaining:
        timeline = _Timeline(events=events, instance=instance, machine=machine, channel=events.channel.copy())
        seed = remaining.pop(0)
        timeline.add(seed, rows_of[seed], events.select(rows_of[seed]), Line())
        while added := timeline.add_next(remaining, rows_of):
            remaining = [domain for domain in remaining if domain not in added]
        timelines.append(timeline)
    for by_messages in (False, True):
        count = len(timelines) + 1
        while len(timelines) < count:
            count = len(timelines)
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
    """The operations of the domains added so far, on one clock.

    `instance` is shared by all timelines: an operation is numbered by the row of its first event.
    """

    events: Events
    instance: Int64s
    machine: Int64s  # of each domain
    channel: Int64s  # of each event, on this timeline
    lines: dict[int, Line] = field(default_factory=dict)  # domain -> its correction
    operations: Reference | None = None

    def add_next(self, remaining: list[int], rows_of: list[Int64s]) -> list[int]:
        """Add the domains with clear evidence, or else the one with the most; return them."""
        candidates: dict[int, Candidate] = {}
        clear = []
        for domain in remaining:
            events = self.events.select(rows_of[domain])
            candidate = self._find_candidate(events)
            if candidate is None:
                continue
            candidates[domain] = candidate
            if candidate.evidence >= _CLEAR_EVIDENCE:
                self.add(domain, rows_of[domain], events, candidate.line)
                clear.append(domain)
        if clear or not candidates:
            return clear
        best = max(candidates, key=lambda domain: candidates[domain].evidence)
        self.add(best, rows_of[best], self.events.select(rows_of[best]), candidates[best].line)
        return [best]

    def _find_candidate(self, events: Events) -> Candidate | None:
        """Find the correction of a domain by its collectives; None if it shares none.

        Messages only add evidence: the ends of a buffered message differ by its transfer time.
        """
        is_message = events.is_message
        collectives = events.select(~is_message)
        reference = self._keep_keys(collectives.key)
        if not len(collectives) or not len(reference):
            return None
        messages = events.select(is_message)
        number = self.machine[events.domain[0]]
        machine_lines = [line for domain, line in self.lines.items() if self.machine[domain] == number]
        message_reference = self._keep_keys(messages.key)
        return find_offset(
            collectives,
            reference,
            (messages, message_reference),
            machine_lines[0] if machine_lines else None,
        )

    def find_timeline(self, other: _Timeline, *, by_messages: bool) -> Candidate | None:
        """Find the correction of another timeline; None without shared operations of the kind."""
        events, operations = other.merge_operations(), self.merge_operations()
        events = events.select(events.is_message == by_messages)
        operations = operations.select(np.isin(operations.key, np.unique(events.key)))
        if not len(events) or not len(operations):
            return None
        numbers = np.arange(len(operations))
        return find_offset(events, build_reference(operations, operations.end, operations.channel, numbers))

    def merge_operations(self) -> Events:
        """Return each operation once, at the median time of its members."""
        rows = np.flatnonzero(np.isin(self.events.domain, list(self.lines)))
        times = np.empty(len(rows))
        for domain, line in self.lines.items():
            is_member = self.events.domain[rows] == domain
            times[is_member] = self.events.end[rows[is_member]] + line.at(self.events.end[rows[is_member]])
        instances, number, counts = np.unique(self.instance[rows], return_inverse=True, return_counts=True)
        order = np.lexsort((times, number))
        middle = np.cumsum(counts) - counts + (counts - 1) // 2
        merged = self.events.select(instances)
        return replace(merged, end=times[order][middle], channel=self.channel[instances])

    def _keep_keys(self, keys: Int64s) -> Reference:
        assert self.operations is not None
        return self.operations.select(np.isin(self.operations.key, np.unique(keys)))

    def add(self, domain: int, rows: Int64s, events: Events, line: Line) -> None:
        """Add a domain: its events join the operations they match, the others become new operations."""
        self.lines[domain] = line
        # A new channel of the timeline keeps the number of its first event's channel.
        channels = events.channel.copy()
        instances = rows.copy()
        if self.operations is not None:
            reference = self._keep_keys(events.key)
            pairs = keep_consensus(pair_events(events, reference, line), events, reference, line)
            pairs = _keep_distinct(pairs, events, reference)
            instances[pairs.event_row] = reference.instances[pairs.reference_row]
            matched, first = np.unique(events.channel[pairs.event_row], return_index=True)
            joined = np.isin(events.channel, matched)
            index = np.searchsorted(matched, events.channel[joined])
            channels[joined] = reference.channels[pairs.reference_row[first[index]]]
        self.instance[rows] = instances
        self.channel[rows] = channels
        is_new = instances == rows
        new = build_reference(
            events.select(is_new), (events.end + line.at(events.end))[is_new], channels[is_new], rows[is_new]
        )
        self.operations = new if self.operations is None else self.operations.insert(new)


def _join(timelines: list[_Timeline], rows_of: list[Int64s], *, by_messages: bool) -> list[_Timeline]:
    """Join timelines with larger ones: times averaged over many domains are more precise than the times of one domain."""
    kept: list[_Timeline] = []
    for timeline in sorted(timelines, key=lambda timeline: -len(timeline.lines)):
        for larger in kept[:_MAX_COMPARED]:
            candidate = larger.find_timeline(timeline, by_messages=by_messages)
            if candidate is not None:
                for domain, line in timeline.lines.items():
                    events = timeline.events.select(rows_of[domain])
                    larger.add(domain, rows_of[domain], events, line.compose(candidate.line))
                break
        else:
            kept.append(timeline)
    return kept


def _keep_distinct(pairs: Pairs, events: Events, reference: Reference) -> Pairs:
    """Keep at most one event of each channel per operation of the reference."""
    both = np.stack((events.channel[pairs.event_row], reference.instances[pairs.reference_row]))
    _, first = np.unique(both, axis=1, return_index=True)
    first.sort()
    return Pairs(event_row=pairs.event_row[first], reference_row=pairs.reference_row[first])
