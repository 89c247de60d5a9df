"""Matching of shared operations (collectives and messages) between clock domains.

Domains are added to a common timeline, machine by machine. A collective ends on all its ranks together, and so do the
collectives before and after it. A training repeats itself, so an offset that is wrong by a micro-batch or a step
explains much as well. All evidence is therefore used at once: the operations of all reports of a machine, recorded UTC,
and that the sessions of a machine agree on it unless it was stepped between them. Machines with a clear answer come first.
Where a rival explains nearly as much, the machine's doubt is the distance of that rival.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.alignment.candidates import Candidate, find_candidates, find_single, widen_scatter
from nsys_pp.alignment.events import Events
from nsys_pp.alignment.lines import Line
from nsys_pp.alignment.pairs import TOGETHER_NS
from nsys_pp.alignment.timeline import Timeline
from nsys_pp.arrays.types import Floats, Int64s

MAX_UTC_ERROR_NS = 10e9
"""Largest error of recorded UTC."""

MAX_SESSION_DIFFERENCE_NS = 1.2e6
"""Largest difference of UTC between two sessions of one machine: about 0.1 ms, with a margin for corrections."""

_UTC_SCALE_NS = 3e6  # half of all machines are closer to UTC than this
_SESSION_SCALE_NS = 150e3  # half of all sessions are closer to the others of their machine than this
_STEPPED_SHARE = 1e-4  # sessions of a machine between which UTC was stepped
# of the drift of two clocks relative to each other; crystals are specified to 50 ppm or better
_DRIFT_SIGMA = 35e-6
_RESOLUTION_NS = 5e3  # offsets this close explain the same operations
_MIN_EVIDENCE = 1.0  # for sharing operations at all, after the improbability of the offset
_BLUNT = 5.0  # more of it where the operations do not end together
_LEAST_EVIDENCE = 12.0  # the same, however improbable the offset; recorded UTC is then a rival
_MARGIN = 12.0  # rivals with less evidence than the best by this are ruled out
_RELATIVE_MARGIN = 0.15  # the same, of the evidence of the best: operations are not independent
_CERTAIN = 40.0  # evidence that unrelated operations in lockstep seldom reach
_CERTAIN_IF_BLUNT = 80.0  # the same, of those that end together to more than `_SHARP_NS`
_SHARP_NS = 5e3
_DOUBT_MARGIN = 1.02  # rivals are known less precisely than the best
_CLEAR_MARGIN = 25.0  # enough to add several units in one pass
_ABOUT_BEST = 0.6  # of the clearest margin


class Matches(Struct, frozen=True, kw_only=True):
    """Events matched to operations, with an approximate line of each domain.

    Attributes:
        instance: Operation of each event, -1 without another member. Events of one instance ended together
            (or are one message).
        group: Group of each domain; only domains of one group can be compared.
        lines: Correction of each domain onto the timeline of its group.
        doubt_ns: Distance of the farthest rival of each domain's correction; 0 without rivals.
    """

    instance: Int64s
    group: Int64s
    lines: list[Line]
    doubt_ns: Floats


class _Choice(Struct, frozen=True, kw_only=True):
    """The best correction of a unit: domains that were tied to each other before.

    Attributes:
        unit: The unit.
        line: Its correction.
        margin: Evidence beyond that of the best rival.
        doubt_ns: Distance of the farthest rival that explains nearly as much; 0 without rivals.
        weakness_ns: Distance of recorded UTC, if the operations end together only roughly, and are few for that; else 0.
        sharpest_ns: Least scatter of the channels that support it; infinite where too few operations show it.
    """

    unit: Timeline
    line: Line
    margin: float
    doubt_ns: float
    weakness_ns: float
    sharpest_ns: float

    @property
    def is_clear(self) -> bool:
        """Whether no rival comes near it."""
        return self.doubt_ns == 0.0 and self.margin > _CLEAR_MARGIN


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
        is_utc=is_utc,
        rows_of=_split_by_domain(events, len(machine), np.flatnonzero(~is_buffered)),
        instance=np.full(len(events), -1, dtype=np.int64),
    )
    units = [matcher.start(domain) for domain in range(len(machine))]
    by_machine = [
        replace(matcher, session_width_ns=MAX_SESSION_DIFFERENCE_NS).tie(
            [unit for unit in units if number in unit.machines], only_clear=True
        )
        for number in np.unique(machine).tolist()
    ]
    units = [unit for tied in by_machine for unit in tied]
    units = matcher.tie_all(units)
    if len(units) > 1 and is_buffered.any():
        # the transfer of a buffered message is between the ends of its kernels, so other operations are asked first
        matcher = replace(matcher, rows_of=_split_by_domain(events, len(machine), np.arange(len(events))))
        units = matcher.tie_all([matcher.rebuild(unit) for unit in units])
    group = np.empty(len(machine), dtype=np.int64)
    lines, doubt_ns = [Line()] * len(machine), np.zeros(len(machine))
    for number, unit in enumerate(units):
        for domain, line in unit.lines.items():
            group[domain], lines[domain] = number, line
            doubt_ns[domain] = unit.doubts_ns[domain]
    instance = matcher.instance
    sizes = np.bincount(
        instance[instance >= 0], minlength=len(instance)
    )  # rows that were not added have no operation
    return Matches(
        instance=np.where((instance >= 0) & (sizes[instance] > 1), instance, -1),
        group=group,
        lines=lines,
        doubt_ns=doubt_ns,
    )


def _split_by_domain(events: Events, domain_count: int, rows: Int64s) -> list[Int64s]:
    """List the rows of each domain, of these rows."""
    rows = rows[np.argsort(events.domain[rows], kind="stable")]
    bounds = np.searchsorted(events.domain[rows], np.arange(domain_count + 1))
    return [rows[bounds[domain] : bounds[domain + 1]] for domain in range(domain_count)]


class _Matcher(Struct, frozen=True, kw_only=True):
    """Ties units (timelines of one or more domains) to each other."""

    events: Events
    machine: Int64s
    is_utc: list[bool]
    rows_of: list[Int64s]
    instance: Int64s
    sharpest_ns: list[float] = field(default_factory=list)  # of each correction that was clear
    session_width_ns: float = MAX_UTC_ERROR_NS

    def scatter_ns(self) -> float | None:
        """Return the scatter of the ends of one operation in this run; None as long as it is not known."""
        return widen_scatter(float(np.median(self.sharpest_ns))) if self.sharpest_ns else None

    def start(self, domain: int) -> Timeline:
        """Return a unit of one domain."""
        unit = self._begin()
        self._add_domain(unit, domain, Line(), 0.0)
        return unit

    def rebuild(self, unit: Timeline) -> Timeline:
        """Return a unit of the same domains and corrections, with all rows of the domains."""
        rebuilt = self._begin()
        for domain, line in unit.lines.items():
            self._add_domain(rebuilt, domain, line, unit.doubts_ns[domain])
        return rebuilt

    def _begin(self) -> Timeline:
        """Return a timeline without domains."""
        return Timeline(
            events=self.events,
            instance=self.instance,
            machine=self.machine,
            channel=self.events.channel.copy(),
        )

    def _add_domain(self, timeline: Timeline, domain: int, line: Line, doubt_ns: float) -> None:
        """Add a domain to a timeline by its correction."""
        timeline.add(domain, self.rows_of[domain], line, self.scatter_ns())
        timeline.doubts_ns[domain] = doubt_ns

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
        remaining = sorted(units, key=lambda unit: (-_count_events(unit, self.rows_of), min(unit.lines)))
        tied: list[Timeline] = []
        while remaining:
            timeline = remaining.pop(0)
            while added := self._add_next(timeline, remaining, only_clear=only_clear):
                remaining = [unit for unit in remaining if not any(unit is one for one in added)]
            tied.append(self._reconsider(timeline) if only_clear else timeline)
        return tied

    def _reconsider(self, timeline: Timeline) -> Timeline:
        """Choose again, by all other domains, the corrections of those whose collectives match nothing on the timeline.

        Such a domain may have been added by some messages, before the members of its collectives.
        """
        for unmatched in timeline.list_unmatched():
            others = self._begin()
            for domain, line in timeline.lines.items():
                if domain != unmatched:
                    self._add_domain(others, domain, line, timeline.doubts_ns[domain])
            choice = self._choose(others, [self.start(unmatched)])
            if choice is None:
                self._add_domain(others, unmatched, timeline.lines[unmatched], timeline.doubts_ns[unmatched])
            else:
                self._add(others, choice)
            timeline = others
        return timeline

    def _add_next(self, timeline: Timeline, remaining: list[Timeline], *, only_clear: bool) -> list[Timeline]:
        """Add all units with a clear correction, or else the one with the least doubt; return them."""
        found = [self._choose(timeline, joint) for joint in self._list_joint(timeline, remaining)]
        choices = [choice for choice in found if choice is not None]
        clear = [choice for choice in choices if choice.is_clear]
        if clear:
            # the others are clearer with these on the timeline
            least = _ABOUT_BEST * max(choice.margin for choice in clear)
            clear = [choice for choice in clear if choice.margin >= least]
        elif choices and not only_clear:
            clear = [max(choices, key=lambda choice: (choice.doubt_ns == 0.0, choice.margin))]
        for choice in clear:
            self._add(timeline, choice)
        return [choice.unit for choice in clear]

    def _list_joint(self, timeline: Timeline, remaining: list[Timeline]) -> list[list[Timeline]]:
        """List the units whose corrections are judged jointly: units of one machine that is not on the timeline."""
        joint: list[list[Timeline]] = []
        of_machine: dict[int, list[Timeline]] = {}
        for unit in remaining:
            machines = unit.machines
            if len(machines) > 1 or machines & timeline.machines:
                joint.append([unit])
                continue
            of_machine.setdefault(next(iter(machines)), []).append(unit)
        return [*joint, *of_machine.values()]

    def _choose(self, timeline: Timeline, joint: list[Timeline]) -> _Choice | None:
        """Choose the correction of the unit with most evidence, by the operations of all units jointly."""
        center, width_ns = self._expect(timeline, joint[0])
        candidates = [
            find_candidates(merged, timeline.keep_keys(merged.key), center, width_ns, self.scatter_ns())
            if len(merged)
            else []
            for merged in (unit.merge_operations() for unit in joint)
        ]
        scored: list[tuple[float, int, Candidate]] = []
        for number, own in enumerate(candidates):
            for candidate in own:
                score = candidate.evidence + _weigh_drift(candidate.line)
                score += self._weigh(timeline, joint[number], candidate.line, center)
                for other, others in enumerate(candidates):
                    near = [
                        rival.evidence for rival in others
                        if rival.line.distance_ns(candidate.line) <= MAX_SESSION_DIFFERENCE_NS
                    ]  # fmt: skip
                    score += max(near, default=0.0) if other != number else 0.0
                scored.append((score, number, candidate))
        if not scored:
            return None
        score, number, best = _choose_unit(scored)
        is_blunt = TOGETHER_NS < best.sharpest_ns < np.inf
        is_certain = score >= _MIN_EVIDENCE + is_blunt * _BLUNT
        if not is_certain and (is_blunt or best.evidence < _LEAST_EVIDENCE):
            return self._choose_single(timeline, joint[0]) if len(joint) == 1 else None
        # candidates of other units of the machine within the error of its UTC are the same hypothesis
        rivals = [
            (other, candidate) for other, owner, candidate in scored
            if candidate is not best
            and (owner == number or candidate.line.distance_ns(best.line) > MAX_SESSION_DIFFERENCE_NS)
        ]  # fmt: skip
        margin = max(_MARGIN, _RELATIVE_MARGIN * score)
        close = [rival.line.distance_ns(best.line) for other, rival in rivals if other > score - margin]
        utc_ns = self._measure_offset(timeline, joint[number], best.line, center)
        if score < _CERTAIN:  # unrelated operations in lockstep could explain it: recorded UTC is a rival
            close.append(utc_ns)
        # sessions of a machine always differ by some
        is_weak = best.sharpest_ns > _SHARP_NS and score < _CERTAIN_IF_BLUNT and utc_ns > _SESSION_SCALE_NS
        return _Choice(
            unit=joint[number],
            line=best.line,
            margin=score - max((other for other, _ in rivals), default=0.0),
            doubt_ns=_DOUBT_MARGIN * max(close, default=0.0),
            weakness_ns=_DOUBT_MARGIN * utc_ns if is_weak else 0.0,
            sharpest_ns=best.sharpest_ns,
        )

    def _choose_single(self, timeline: Timeline, unit: Timeline) -> _Choice | None:
        """Choose a correction by keys with a single operation on both sides.

        That is no evidence that UTC was stepped between sessions of a machine.
        """
        events = unit.merge_operations()
        line = find_single(events, timeline.keep_keys(events.key)) if len(events) else None
        center, width_ns = self._expect(timeline, unit)
        if unit.machines & timeline.machines:
            width_ns = MAX_SESSION_DIFFERENCE_NS
        if line is None or line.distance_ns(center) > width_ns:
            return None
        return _Choice(unit=unit, line=line, margin=0.0, doubt_ns=0.0, weakness_ns=0.0, sharpest_ns=np.inf)

    def _expect(self, timeline: Timeline, unit: Timeline) -> tuple[Line, float]:
        """Return the expected correction of a unit, and the largest distance from it."""
        shared = sorted(unit.machines & timeline.machines)
        if not shared:
            return Line(), MAX_UTC_ERROR_NS
        ours, theirs = (one.find_machine_line(shared[0]) for one in (timeline, unit))
        assert ours is not None
        assert theirs is not None
        at_zero = float(ours.at(np.zeros(1))[0] - theirs.at(np.zeros(1))[0])
        return Line(offset_ns=at_zero, rate=ours.rate - theirs.rate), self.session_width_ns

    def _weigh(self, timeline: Timeline, unit: Timeline, line: Line, center: Line) -> float:
        """Return the log probability of a correction before any operation is compared."""
        distance_ns = self._measure_offset(timeline, unit, line, center)
        if np.isinf(distance_ns):
            return float(np.log(_RESOLUTION_NS / (2 * MAX_UTC_ERROR_NS)))
        if not unit.machines & timeline.machines:
            return _weigh_offset(distance_ns, _UTC_SCALE_NS)
        is_stepped = distance_ns > MAX_SESSION_DIFFERENCE_NS
        return _weigh_offset(distance_ns, _SESSION_SCALE_NS) + is_stepped * float(np.log(_STEPPED_SHARE))

    def _measure_offset(self, timeline: Timeline, unit: Timeline, line: Line, center: Line) -> float:
        """Return the distance of a correction from the recorded UTC of the nearest clock; infinite without UTC."""
        if unit.machines & timeline.machines:
            return line.distance_ns(center)
        ours, theirs = (
            [own for domain, own in part.lines.items() if self.is_utc[domain]] for part in (timeline, unit)
        )
        if not ours or not theirs:
            return np.inf
        corrected = theirs[0].compose(line)
        return min(corrected.distance_ns(other) for other in ours)

    def _add(self, timeline: Timeline, choice: _Choice) -> None:
        """Add a unit; it also inherits the doubts of the domains that it was compared with."""
        if choice.is_clear and np.isfinite(choice.sharpest_ns):
            self.sharpest_ns.append(choice.sharpest_ns)
        inherited = [timeline.inherit_doubt(choice.unit.merge_operations(), choice.line, self.scatter_ns())]
        if (
            shared := choice.unit.machines & timeline.machines
        ):  # it was expected near the others of its machine
            inherited.append(
                min(own for domain, own in timeline.doubts_ns.items() if int(self.machine[domain]) in shared)
            )
        doubt_ns = max(choice.doubt_ns, choice.weakness_ns) + max(inherited, default=0.0)
        for domain, line in choice.unit.lines.items():
            own_ns = choice.unit.doubts_ns[domain]
            self._add_domain(timeline, domain, line.compose(choice.line), own_ns + doubt_ns)


def _choose_unit(scored: list[tuple[float, int, Candidate]]) -> tuple[float, int, Candidate]:
    """Choose, of the units of a machine that support the best hypothesis, the one with most operations of its own.

    The others may owe their score to it, and have better candidates of their own.

    Args:
        scored: Score, unit and candidate; at least one.
    """
    of_unit: dict[int, tuple[float, int, Candidate]] = {}
    ranked = sorted(scored, key=lambda choice: -choice[0])
    best = ranked[0][2].line
    for choice in ranked:
        if choice[2].line.distance_ns(best) <= MAX_SESSION_DIFFERENCE_NS:
            of_unit.setdefault(choice[1], choice)
    return max(of_unit.values(), key=lambda choice: choice[2].evidence)


def _count_events(unit: Timeline, rows_of: list[Int64s]) -> int:
    return sum(len(rows_of[domain]) for domain in unit.lines)


def _weigh_drift(line: Line) -> float:
    """Return the log probability of a drift, relative to no drift, with a normal distribution."""
    return -0.5 * (line.rate / _DRIFT_SIGMA) ** 2


def _weigh_offset(distance_ns: float, scale_ns: float) -> float:
    """Return the log probability of an offset, with a Cauchy distribution of this scale."""
    return float(np.log(_RESOLUTION_NS / (np.pi * scale_ns * (1 + (distance_ns / scale_ns) ** 2))))
