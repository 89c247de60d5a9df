"""Matching of shared operations (collectives and messages) between clock domains.

Domains are added to a common timeline, machine by machine. A collective ends on all its ranks together, and
so do the collectives before and after it. All evidence is used at once (`nsys_pp.alignment.choice`): the
operations of all reports of a machine, recorded UTC, and that the sessions of a machine agree on it unless it
was stepped between them. Machines with a clear answer come first.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.alignment.candidates import widen_scatter
from nsys_pp.alignment.choice import (
    MAX_SESSION_DIFFERENCE_NS,
    Choice,
    Prior,
    RivalDistances,
    Timeline,
    choose,
)
from nsys_pp.alignment.events import Events
from nsys_pp.alignment.near import Line
from nsys_pp.arrays.columns import find_distinct, list_distinct
from nsys_pp.arrays.search import list_groups
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.clock import SKEW_NS

_ABOUT_BEST = 0.6  # of the clearest margin
_AT_A_TIME = 16  # units or machines whose corrections are compared; more only as long as none is clear


class Matches(Struct, frozen=True, kw_only=True):
    """Events matched to operations, with an approximate line of each domain.

    Attributes:
        instance: Operation of each event, -1 without another member. Events of one instance ended together
            (or are one message).
        group: Group of each domain; only domains of one group can be compared.
        lines: Correction of each domain onto the timeline of its group.
        rival_distances: RivalDistances of each domain's correction.
    """

    instance: Int64s
    group: Int64s
    lines: list[Line]
    rival_distances: list[RivalDistances]


def match_events(events: Events, machine: Int64s, is_utc: list[bool]) -> Matches:
    """Match the events of all domains: first domains of one machine, then machines.

    Args:
        events: Events of all domains.
        machine: Machine number of each domain, with events or without.
        is_utc: Whether the first guess of each domain is a recorded UTC.

    Returns:
        The matches; a domain without shared operations is a group by itself.
    """
    is_buffered = events.is_buffered
    matcher = _Matcher(
        events=events,
        machine=machine,
        prior=Prior(is_utc=is_utc),
        rows_of=_split_by_domain(events, len(machine), np.flatnonzero(~is_buffered)),
        keys_of=_list_keys(events, len(machine)),
        instance=np.full(len(events), -1, dtype=np.int64),
        channel=events.channel.copy(),
    )
    units = [matcher.start(domain) for domain in range(len(machine))]
    by_machine = [
        replace(matcher, prior=replace(matcher.prior, session_width_ns=MAX_SESSION_DIFFERENCE_NS)).tie(
            [unit for unit in units if number in unit.machines], only_clear=True
        )
        for number in list_distinct(machine).tolist()
    ]
    units = matcher.tie_all([unit for tied in by_machine for unit in tied])
    if len(units) > 1 and is_buffered.any():
        # the transfer of a buffered message is between the ends of its kernels, so other operations are asked
        # first
        matcher = replace(matcher, rows_of=_split_by_domain(events, len(machine), np.arange(len(events))))
        units = matcher.tie_all([matcher.rebuild(unit) for unit in units])
    group = np.empty(len(machine), dtype=np.int64)
    lines, rival_distances = [Line()] * len(machine), [RivalDistances()] * len(machine)
    for number, unit in enumerate(units):
        torn = matcher.prior.list_torn(unit)  # UTC was stepped between them, or one is wrong
        for domain, line in unit.lines.items():
            group[domain], lines[domain] = number, line
            rival_distances[domain] = unit.rival_distances[domain].widen(torn.get(domain, 0.0))
    instance = matcher.instance
    sizes = np.bincount(
        instance[instance >= 0], minlength=len(instance)
    )  # rows that were not added have no operation
    return Matches(
        instance=np.where((instance >= 0) & (sizes[instance] > 1), instance, -1),
        group=group,
        lines=lines,
        rival_distances=rival_distances,
    )


def _split_by_domain(events: Events, domain_count: int, rows: Int64s) -> list[Int64s]:
    return [rows[own] for own in list_groups(events.domain[rows], domain_count)]


def _list_keys(events: Events, domain_count: int) -> list[int]:
    # keys are the bits of a number
    first, number = find_distinct(events.key)
    keys = [0] * domain_count
    for pair in list_distinct(events.domain * len(first) + number).tolist():
        domain, key = divmod(pair, len(first))
        keys[domain] |= 1 << key
    return keys


class _Matcher(Struct, frozen=True, kw_only=True):
    """Ties units (timelines of one or more domains) to each other."""

    events: Events
    machine: Int64s
    prior: Prior
    rows_of: list[Int64s]
    keys_of: list[int]
    instance: Int64s
    channel: Int64s
    sharpest_ns: list[float] = field(default_factory=list)  # of each correction that was clear

    def scatter_ns(self) -> float | None:
        """Return the scatter of the ends of one operation in this run; None as long as it is not known."""
        return widen_scatter(median(self.sharpest_ns)) if self.sharpest_ns else None

    def start(self, domain: int) -> Timeline:
        """Return a unit of one domain."""
        unit = self._begin()
        self._add_domain(unit, domain, Line(), RivalDistances())
        return unit

    def rebuild(self, unit: Timeline, *, omitted: int = -1) -> Timeline:
        """Return a unit of the same domains, but one, and their corrections, with all their rows."""
        rebuilt = self._begin()
        for domain, line in unit.lines.items():
            if domain != omitted:
                self._add_domain(rebuilt, domain, line, unit.rival_distances[domain])
        return rebuilt

    def _begin(self) -> Timeline:
        return Timeline(
            events=self.events,
            instance=self.instance,
            machine=self.machine,
            channel=self.channel,
        )

    def _add_domain(self, timeline: Timeline, domain: int, line: Line, distances: RivalDistances) -> None:
        timeline.add(domain, self.rows_of[domain], line, self.scatter_ns())
        timeline.rival_distances[domain] = distances

    def tie_all(self, units: list[Timeline]) -> list[Timeline]:
        """Tie units until no two share operations; return the larger units."""
        count = len(units) + 1
        while len(units) < count:
            count = len(units)
            units = self.tie(units, only_clear=False)
        return units

    def tie(self, units: list[Timeline], *, only_clear: bool) -> list[Timeline]:
        """Tie units that share operations; return the larger units.

        Args:
            units: The units.
            only_clear: Leave units without a clear correction alone.
        """
        remaining = sorted(
            units, key=lambda unit: (-sum(len(self.rows_of[one]) for one in unit.lines), min(unit.lines))
        )
        tied: list[Timeline] = []
        keys_after = self._list_later_keys(remaining)
        while remaining:
            timeline = remaining.pop(0)
            if not self._list_keys(timeline) & keys_after[min(timeline.lines)]:
                tied.append(timeline)  # not compared with any, of a thousand that share nothing
                continue
            margins: dict[int, float] = {}
            while added := self._add_next(timeline, remaining, margins, only_clear=only_clear):
                remaining = [unit for unit in remaining if not any(unit is one for one in added)]
            for domain in timeline.list_unmatched() if only_clear else ():
                timeline = self._choose_again(timeline, domain)
            tied.append(timeline)
        return tied

    def _list_keys(self, unit: Timeline) -> int:
        """List the keys of the events of a unit, as bits of a number.

        Units without a common one have no candidates.
        """
        keys = 0
        for domain in unit.lines:
            keys |= self.keys_of[domain]
        return keys

    def _list_later_keys(self, units: list[Timeline]) -> dict[int, int]:
        """List the keys of all units after each one, by the first domain of this."""
        keys_after, keys = {}, 0
        for unit in reversed(units):
            keys_after[min(unit.lines)] = keys
            keys |= self._list_keys(unit)
        return keys_after

    def _choose_again(self, timeline: Timeline, domain: int) -> Timeline:
        """Return a timeline on which the correction of a domain is chosen by all others.

        Without evidence it keeps its own.
        """
        others = self.rebuild(timeline, omitted=domain)
        choice = choose(others, [self.start(domain)], self.prior, self.scatter_ns())
        if choice is None:
            self._add_domain(others, domain, timeline.lines[domain], timeline.rival_distances[domain])
        else:
            self._add(others, choice)
        return others

    def _add_next(
        self, timeline: Timeline, remaining: list[Timeline], margins: dict[int, float], *, only_clear: bool
    ) -> list[Timeline]:
        """Add all units with a clear correction, or else the one with the least doubt; return them.

        Of many, those that were clearest before are compared first.

        Args:
            timeline: The timeline, changed in place.
            remaining: The units that are not on it.
            margins: Margin of the last choice of joint units if it was clear, else 0, by their first domain;
                changed in place.
            only_clear: Add none without a clear correction.
        """
        keys, scatter_ns = self._list_keys(timeline), self.scatter_ns()
        joint = self._list_joint(timeline, remaining)
        if len(joint) > _AT_A_TIME:
            joint.sort(key=lambda units: -margins.get(min(units[0].lines), np.inf))
        choices: list[Choice] = []
        chosen: list[Choice] = []
        for number, units in enumerate(joint):
            if chosen and number % _AT_A_TIME == 0:
                break
            has_common = any(self._list_keys(unit) & keys for unit in units)
            choice = choose(timeline, units, self.prior, scatter_ns) if has_common else None
            margins[min(units[0].lines)] = choice.margin if choice is not None and choice.is_clear else 0.0
            if choice is not None:
                choices.append(choice)
                chosen += [choice] * choice.is_clear
        if chosen:
            # the others are clearer with these on the timeline
            least = _ABOUT_BEST * max(choice.margin for choice in chosen)
            chosen = [choice for choice in chosen if choice.margin >= least]
        elif choices and not only_clear:
            chosen = [max(choices, key=lambda choice: (choice.rival_distances.any_ns == 0.0, choice.margin))]
        for choice in chosen:
            self._add(timeline, choice)
        return [choice.unit for choice in chosen]

    def _list_joint(self, timeline: Timeline, remaining: list[Timeline]) -> list[list[Timeline]]:
        """List the units whose corrections are judged jointly.

        Units of one machine that is not on the timeline.
        """
        joint: list[list[Timeline]] = []
        of_machine: dict[int, list[Timeline]] = {}
        for unit in remaining:
            if len(unit.machines) > 1 or timeline.machines & unit.machines:
                joint.append([unit])
            else:
                of_machine.setdefault(next(iter(unit.machines)), []).append(unit)
        return [*joint, *of_machine.values()]

    def _add(self, timeline: Timeline, choice: Choice) -> None:
        """Add a unit; it also inherits the doubts of the domains that it was compared with."""
        if choice.is_clear and np.isfinite(choice.sharpest_ns):
            self.sharpest_ns.append(choice.sharpest_ns)
        distances = timeline.inherit_doubts(choice.unit.merge_operations(), choice.line, self.scatter_ns())
        shared = timeline.machines & choice.unit.machines
        if shared:  # it was expected near the others of its machine
            distances = distances.widen(
                min(
                    own.any_ns
                    for domain, own in timeline.rival_distances.items()
                    if int(self.machine[domain]) in shared
                )
            )
        distances = distances.widen(self._inherit_from_doubted(timeline, choice, distances.any_ns))
        distances += choice.rival_distances.widen(choice.weakness_ns)
        for domain, line in choice.unit.lines.items():
            self._add_domain(
                timeline,
                domain,
                line.compose(choice.line),
                choice.unit.rival_distances[domain] + distances,
            )

    def _inherit_from_doubted(self, timeline: Timeline, choice: Choice, inherited_ns: float) -> float:
        """Return the least distance of rivals of doubted domains.

        If a choice by the others is another one or not certain; else 0.

        Args:
            timeline: The timeline, without the unit.
            choice: The choice.
            inherited_ns: Distance that is inherited in any case.
        """
        doubted = {
            domain: distances.any_ns
            for domain, distances in timeline.rival_distances.items()
            if distances.any_ns > inherited_ns + SKEW_NS
        }
        if not doubted:
            return 0.0
        others = timeline.without(doubted)
        alone = choose(others, [choice.unit], self.prior, self.scatter_ns()) if others.lines else None
        is_same = alone is not None and alone.line.distance_ns(choice.line) <= SKEW_NS
        if alone is not None and is_same and max(alone.rival_distances.any_ns, alone.weakness_ns) <= SKEW_NS:
            return 0.0
        return min(doubted.values())
