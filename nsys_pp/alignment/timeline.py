"""Timeline: the operations of the domains added so far, on one clock."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.alignment.events import Events, mark_shared
from nsys_pp.alignment.evidence import pair_by_line
from nsys_pp.alignment.lines import Line, stack_lines
from nsys_pp.alignment.near import prepare
from nsys_pp.alignment.pairs import SCATTERS_NS, Pairs
from nsys_pp.alignment.reference import Reference, build_reference
from nsys_pp.arrays.columns import find_distinct
from nsys_pp.arrays.members import list_members, mark_members
from nsys_pp.arrays.types import Floats, Int64s

_LEAST_DOMAINS = 3  # of a timeline of which one may be unmatched
_LEAST_COLLECTIVES = 20  # of an unmatched domain
_MATCHED_SHARE = 0.1  # of its collectives, at most
_LEAST_SHARE = 0.15  # of the operations of a domain: doubts of fewer are not inherited


class RivalDistances(Struct, frozen=True):
    """Distances of the farthest rivals of a correction; 0 without rivals.

    Attributes:
        any_ns: Of all rivals.
        stepped_ns: Of those by which UTC was stepped between sessions of the machine, where operations speak for it.
    """

    any_ns: float = 0.0
    stepped_ns: float = 0.0

    def __add__(self, other: RivalDistances) -> RivalDistances:
        return RivalDistances(self.any_ns + other.any_ns, self.stepped_ns + other.stepped_ns)

    def widen(self, distance_ns: float) -> RivalDistances:
        """Return the distances with another rival at this one."""
        return RivalDistances(max(self.any_ns, distance_ns), self.stepped_ns)


class Timeline(Struct):
    """The operations of the domains added so far.

    `instance` and `channel` are shared by all timelines, as no two have a domain in common: an operation is numbered by the row of its first event.

    Attributes:
        events: Events of all domains.
        instance: Operation of each event; -1 for events of domains that were not added to a timeline.
        machine: Machine of each domain.
        channel: Channel of each event on its timeline.
        machines: Machines of the domains that were added.
        lines: Correction of each of these domains.
        rival_distances: RivalDistances of each of these domains.
        rivals: Other corrections of each of these domains that operations supported.
        operations: All operations; None before the first domain.
        rows: Events of each of these domains.
        merged: `merge_operations`, until a domain is added.
    """

    events: Events
    instance: Int64s
    machine: Int64s
    channel: Int64s
    machines: set[int] = field(default_factory=set)
    lines: dict[int, Line] = field(default_factory=dict)
    rival_distances: dict[int, RivalDistances] = field(default_factory=dict)
    rivals: dict[int, list[Line]] = field(default_factory=dict)
    operations: Reference | None = None
    rows: dict[int, Int64s] = field(default_factory=dict)
    merged: Events | None = None

    def find_shared(self, unit: Timeline) -> set[int]:
        """Find the machines that a unit has sessions of, as this timeline has: each has one physical clock."""
        return self.machines & unit.machines

    def keep_keys(self, keys: Int64s) -> Reference:
        """Return the operations with these keys."""
        assert self.operations is not None
        return self.operations.keep_keys(keys)

    def find_machine_line(self, machine: int) -> Line | None:
        """Return the correction of a domain of a machine, the middle one of several; None without any."""
        lines = [line for domain, line in self.lines.items() if self.machine[domain] == machine]
        return (
            sorted(lines, key=lambda line: float(line.at(np.zeros(1))[0]))[len(lines) // 2] if lines else None
        )

    def without(self, omitted: Collection[int]) -> Timeline:
        """Return the timeline without some domains and the operations that only these have."""
        assert self.operations is not None
        others = [other for other in self.lines if other not in omitted]
        is_kept = np.zeros(len(self.instance), dtype=np.bool_)  # by operation
        for other in others:
            is_kept[self.instance[self.rows[other]]] = True
        return replace(
            self,
            machines={int(self.machine[other]) for other in others},
            lines={other: self.lines[other] for other in others},
            rival_distances={other: self.rival_distances[other] for other in others},
            operations=self.operations.select(is_kept[self.operations.instances]),
            rows={other: self.rows[other] for other in others},
            merged=None,
        )

    def inherit_doubts(self, events: Events, line: Line, scatter_ns: float | None) -> RivalDistances:
        """Return the distances of rivals of the operations of the timeline that a domain shares.

        An operation is doubted if half of its members are: the domain may share it with these only.
        """
        if not any(own.any_ns or own.stepped_ns for own in self.rival_distances.values()):
            return RivalDistances()
        reference = self.keep_keys(events.key)
        pairs = _pair(events, reference, line, scatter_ns)
        shared = list_members(reference.instances[pairs.reference_row])
        rows = np.flatnonzero(
            mark_members(self.instance, shared) & mark_members(self.events.domain, np.array([*self.lines]))
        )
        if not len(rows):
            return RivalDistances()
        return RivalDistances(
            *(
                self._inherit(
                    rows, {domain: getattr(own, name) for domain, own in self.rival_distances.items()}
                )
                for name in RivalDistances.__struct_fields__
            )
        )

    def _inherit(self, rows: Int64s, distances_ns: dict[int, float]) -> float:
        """Return the distance of rivals of the operations of some events: of each the median, of all the largest but for a few."""
        if not any(distances_ns.values()):
            return 0.0
        of_domain = np.zeros(max(self.lines) + 1)
        of_domain[list(distances_ns)] = list(distances_ns.values())
        own = of_domain[self.events.domain[rows]]
        order = np.lexsort((own, self.instance[rows]))
        _, first, counts = np.unique(self.instance[rows][order], return_index=True, return_counts=True)
        of_operation = own[order][first + counts // 2]
        return float(np.quantile(of_operation, 1 - _LEAST_SHARE, method="higher"))

    def add(self, domain: int, rows: Int64s, line: Line, scatter_ns: float | None) -> None:
        """Add a domain: its events join the operations that they match, the others become new operations.

        Args:
            domain: The domain.
            rows: Its events.
            line: Its correction.
            scatter_ns: Scatter of the ends of one operation; None where unknown.
        """
        events = self.events.select(find_range(rows))
        self.machines.add(int(self.machine[domain]))
        self.lines[domain], self.rows[domain], self.merged = line, rows, None
        # A new channel of the timeline keeps the number of its first event's channel.
        channels = events.channel.copy()
        instances = rows.copy()
        if self.operations is not None and len(rows):
            reference = self.keep_keys(events.key)
            pairs = _pair(events, reference, line, scatter_ns)
            instances[pairs.event_row] = reference.instances[pairs.reference_row]
            matched, first = np.unique(events.channel[pairs.event_row], return_index=True)
            joined = mark_members(events.channel, matched)
            index = np.searchsorted(matched, events.channel[joined])
            channels[joined] = reference.channels[pairs.reference_row[first[index]]]
        self.instance[rows] = instances
        self.channel[rows] = channels
        times = events.end + line.at(events.end)
        is_new = (instances == rows) & ~self._is_covered(events, channels, times)
        new = build_reference(events, times, channels, rows, is_kept=is_new)
        self.operations = new if self.operations is None else self.operations.insert(new)

    def list_unmatched(self) -> list[int]:
        """List the domains with many collectives that others could share by their keys, but share hardly one of."""
        if len(self.lines) < _LEAST_DOMAINS:
            return []
        rows = np.flatnonzero(
            mark_members(self.events.domain, np.array([*self.lines])) & ~self.events.is_message
        )
        domain = self.events.domain[rows]
        size = max(self.lines) + 1
        could_match, matched = (
            np.bincount(domain[mark_shared(values[rows], domain)], minlength=size)
            for values in (self.events.key, self.instance)
        )
        is_unmatched = (could_match >= _LEAST_COLLECTIVES) & (matched < _MATCHED_SHARE * could_match)
        unmatched: list[int] = np.flatnonzero(is_unmatched).tolist()
        return unmatched

    def _is_covered(self, events: Events, channels: Int64s, times: Floats) -> npt.NDArray[np.bool_]:
        """Return the mask of collectives at times when their channel of the timeline was recorded.

        The timeline has all collectives of that time, so these ended late on their rank, or another member did.
        """
        covered, is_collective = np.zeros(len(events), dtype=bool), ~events.is_message
        if self.operations is None:
            return covered
        for channel in list_members(channels[is_collective]).tolist():
            known = self.operations.times[self.operations.channels == channel]
            if len(known):
                covered |= (channels == channel) & (times >= known.min()) & (times <= known.max())
        return covered & is_collective

    def merge_operations(self) -> Events:
        """Return each operation once, at the median time of its members."""
        if self.merged is None:
            self.merged = self._merge_operations()
        return self.merged

    def _merge_operations(self) -> Events:
        rows = np.sort(np.concatenate([*self.rows.values()]))
        end, domain = self.events.end[rows], self.events.domain[rows]
        of_domain = np.empty((3, max(self.lines) + 1))
        of_domain[:, [*self.lines]] = stack_lines([*self.lines.values()]).T
        offset, rate, center = (values[domain] for values in of_domain)
        times = end + (offset + rate * (end - center))
        first, number = find_distinct(self.instance[rows])
        instances = self.instance[rows[first]]
        if len(instances) == len(rows):
            times = times[first]
        else:
            counts = np.bincount(number)
            middle = np.cumsum(counts) - counts + (counts - 1) // 2
            times = times[np.lexsort((times, number))[middle]]
        return replace(self.events.select(find_range(instances)), end=times, channel=self.channel[instances])


def find_range(rows: Int64s) -> Int64s | slice:
    """Return ascending rows as a slice if they follow each other: their columns are then not copied.

    >>> find_range(np.array([4, 5, 6])), find_range(np.array([4, 6]))
    (slice(4, 7, None), array([4, 6]))
    """
    if not len(rows) or int(rows[-1]) - int(rows[0]) + 1 != len(rows):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _pair(events: Events, reference: Reference, line: Line, scatter_ns: float | None) -> Pairs:
    """Pair events by a line; where the scatter is unknown, with the one that explains them best."""
    return pair_by_line(
        prepare(events, reference), line, SCATTERS_NS if scatter_ns is None else (scatter_ns,)
    )
