"""Choice of the guess of each clock: what is on the timeline so far, what is likely, and what decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from nsys_pp.alignment.candidates import Candidate, find_candidates, find_single
from nsys_pp.alignment.events import Events, mark_shared
from nsys_pp.alignment.near import (
    DRIFT_SIGMA,
    FIRST_SCATTER_NS,
    SCATTERS_NS,
    TOGETHER_NS,
    Comparison,
    Line,
    Pairs,
    Reference,
    build_reference,
    measure_distances,
    stack_lines,
)
from nsys_pp.arrays.columns import find_distinct, list_distinct
from nsys_pp.arrays.types import Floats, Int64s

_LEAST_SHARE = 0.15  # of the operations of a domain: doubts of fewer are not inherited


class RivalDistances(Struct, frozen=True):
    """Distances of the farthest rivals of a correction; 0 without rivals.

    Attributes:
        any_ns: Of all rivals.
        stepped_ns: Of those by which UTC was stepped between sessions of the machine, where operations speak
            for it.
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

    `instance` and `channel` are shared by all timelines, as no two have a domain in common: an operation is
    numbered by the row of its first event.

    Attributes:
        events: Events of all domains.
        instance: Operation of each event; -1 for events of domains that were not added to a timeline.
        machine: Machine of each domain.
        channel: Channel of each event on its timeline.
        machines: Machines of the domains that were added.
        lines: Correction of each of these domains.
        rival_distances: RivalDistances of each of these domains.
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
    operations: Reference | None = None
    rows: dict[int, Int64s] = field(default_factory=dict)
    merged: Events | None = None

    def keep_keys(self, keys: Int64s) -> Reference:
        """Return the operations with these keys."""
        assert self.operations is not None
        return self.operations.keep_keys(keys)

    def find_machine_line(self, machine: int) -> Line:
        """Return the correction of a domain of a machine that was added, the middle one of several."""
        lines = [line for domain, line in self.lines.items() if self.machine[domain] == machine]
        return sorted(lines, key=lambda line: float(line.at(np.zeros(1))[0]))[len(lines) // 2]

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
        shared = list_distinct(reference.instances[_pair(events, reference, line, scatter_ns).reference_row])
        rows = np.flatnonzero(
            np.isin(self.instance, shared) & np.isin(self.events.domain, np.array([*self.lines]))
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
        """Return the distance of rivals of the operations of some events.

        Of each the median, of all the largest but for a few.
        """
        of_domain = np.zeros(max(self.lines) + 1)
        of_domain[list(distances_ns)] = list(distances_ns.values())
        own = of_domain[self.events.domain[rows]]
        order = np.lexsort((own, self.instance[rows]))
        _, first, counts = np.unique(self.instance[rows][order], return_index=True, return_counts=True)
        return float(np.quantile(own[order][first + counts // 2], 1 - _LEAST_SHARE, method="higher"))

    def add(self, domain: int, rows: Int64s, line: Line, scatter_ns: float | None) -> None:
        """Add a domain: its events join the operations that they match, the others become new operations.

        Args:
            domain: The domain.
            rows: Its events.
            line: Its correction.
            scatter_ns: Scatter of the ends of one operation; None where unknown.
        """
        events = self.events.select(rows)
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
            joined = np.isin(events.channel, matched)
            index = np.searchsorted(matched, events.channel[joined])
            channels[joined] = reference.channels[pairs.reference_row[first[index]]]
        self.instance[rows] = instances
        self.channel[rows] = channels
        times = events.end + line.at(events.end)
        is_new = (instances == rows) & ~self._is_covered(events, channels, times)
        new = build_reference(events, times, channels, rows, is_kept=is_new)
        self.operations = new if self.operations is None else self.operations.insert(new)

    def list_unmatched(self) -> list[int]:
        """List the domains that share no collective, although others have some of their kind.

        Messages placed them, before the members of their collectives were there.
        """
        rows = np.flatnonzero(np.isin(self.events.domain, np.array([*self.lines])) & ~self.events.is_message)
        domain = self.events.domain[rows]
        expected, shared = (
            list_distinct(domain[mark_shared(values[rows], domain)])
            for values in (self.events.key, self.instance)
        )
        unmatched: list[int] = np.setdiff1d(expected, shared).tolist()
        return unmatched

    def _is_covered(self, events: Events, channels: Int64s, times: Floats) -> npt.NDArray[np.bool_]:
        """Return the mask of collectives at times when their channel of the timeline was recorded.

        The timeline has all collectives of that time, so these ended late on their rank, or another member
        did.
        """
        covered, is_collective = np.zeros(len(events), dtype=bool), ~events.is_message
        if self.operations is None:
            return covered
        for channel in list_distinct(channels[is_collective]).tolist():
            known = self.operations.times[self.operations.channels == channel]
            first, last = known.min(initial=np.inf), known.max(initial=-np.inf)
            covered |= (channels == channel) & (times >= first) & (times <= last)
        return covered & is_collective

    def merge_operations(self) -> Events:
        """Return each operation once, at the median time of its members."""
        if self.merged is not None:
            return self.merged
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
        self.merged = replace(self.events.select(instances), end=times, channel=self.channel[instances])
        return self.merged


def _pair(events: Events, reference: Reference, line: Line, scatter_ns: float | None) -> Pairs:
    """Pair events by a line; where the scatter is unknown, with the one that explains them best."""
    return Comparison(events, reference).pair(line, SCATTERS_NS if scatter_ns is None else (scatter_ns,))


# Largest error of recorded UTC.
MAX_UTC_ERROR_NS = 10e9

# Largest difference of UTC between two sessions of one machine; 0.1 ms was measured.
MAX_SESSION_DIFFERENCE_NS = 1e6

# Half of all sessions are closer to the others of their machine than this.
SESSION_SCALE_NS = 150e3

_UTC_SCALE_NS = 3e6  # half of all machines are closer to UTC than this
# evidence against a step of UTC between sessions of a machine: one in 10,000 has one
_STEP_EVIDENCE = 9.2


class Prior(Struct, frozen=True, kw_only=True):
    """The expected corrections of units (domains that were tied to each other before).

    Attributes:
        is_utc: Whether the first guess of each domain is a recorded UTC.
        session_width_ns: Largest distance of the sessions of one machine.
    """

    is_utc: list[bool]
    session_width_ns: float = MAX_UTC_ERROR_NS

    def expect(self, timeline: Timeline, unit: Timeline) -> tuple[Line, float]:
        """Return the expected correction of a unit, and the largest distance from it."""
        shared = sorted(timeline.machines & unit.machines)  # each has one physical clock
        if not shared:
            return Line(), MAX_UTC_ERROR_NS
        ours, theirs = (one.find_machine_line(shared[0]) for one in (timeline, unit))
        at_zero = float(ours.at(np.zeros(1))[0] - theirs.at(np.zeros(1))[0])
        return Line(offset_ns=at_zero, rate=ours.rate - theirs.rate), self.session_width_ns

    def weigh(self, timeline: Timeline, unit: Timeline, lines: Sequence[Line], center: Line) -> list[float]:
        """Return the log probability of each correction before any operation is compared."""
        distances_ns = self.measure_offsets(timeline, unit, lines, center)
        if not timeline.machines & unit.machines:
            unknown = float(np.log(FIRST_SCATTER_NS / (2 * MAX_UTC_ERROR_NS)))
            return [
                unknown if np.isinf(distance_ns) else _weigh_offset(distance_ns, _UTC_SCALE_NS)
                for distance_ns in distances_ns
            ]
        return [
            _weigh_offset(distance_ns, SESSION_SCALE_NS)
            + (distance_ns > MAX_SESSION_DIFFERENCE_NS) * -_STEP_EVIDENCE
            for distance_ns in distances_ns
        ]

    def measure_offsets(
        self, timeline: Timeline, unit: Timeline, lines: Sequence[Line], center: Line
    ) -> list[float]:
        """Return the distance of each correction from the recorded UTC of the nearest clock.

        Infinite without UTC.
        """
        if timeline.machines & unit.machines:
            return [line.distance_ns(center) for line in lines]
        ours, theirs = (
            [own for domain, own in part.lines.items() if self.is_utc[domain]] for part in (timeline, unit)
        )
        if not ours or not theirs:
            return [np.inf] * len(lines)
        offset_ns, rate, center_ns = stack_lines(ours).T
        ours_ns = offset_ns + rate * (theirs[0].center_ns - center_ns)
        return [float(np.abs(ours_ns - theirs[0].compose(line).offset_ns).min()) for line in lines]

    def list_torn(self, timeline: Timeline) -> dict[int, float]:
        """Return the sessions that are too far from half of the others of their machine to have one UTC.

        Each with this distance, ns.
        """
        known = [domain for domain in timeline.lines if self.is_utc[domain]]
        offsets_ns = np.array([timeline.lines[domain].at(np.zeros(1))[0] for domain in known])
        machines = timeline.machine[known]
        apart_ns = [
            float(np.median(np.abs(offsets_ns[machines == machine] - offset_ns)))
            for offset_ns, machine in zip(offsets_ns, machines, strict=True)
        ]
        return {
            domain: distance_ns
            for domain, distance_ns in zip(known, apart_ns, strict=True)
            if distance_ns > MAX_SESSION_DIFFERENCE_NS
        }


def _weigh_offset(distance_ns: float, scale_ns: float) -> float:
    """Return the log probability of an offset, with a Cauchy distribution of this scale."""
    return float(np.log(FIRST_SCATTER_NS / (np.pi * scale_ns * (1 + (distance_ns / scale_ns) ** 2))))


_MIN_EVIDENCE = 1.0  # for sharing operations at all, after the improbability of the offset
_BLUNT = 5.0  # more of it where the operations do not end together
# the same, however improbable the offset; recorded UTC is then a rival, as is a line by it with this
# evidence, and rivals that are so far below the best are ruled out
_LEAST_EVIDENCE = 12.0
# beyond the best rival: unrelated operations in lockstep seldom reach it, as they do at several offsets
_CERTAIN = 20.0
# the same where they may: between sessions of a machine, which do the same at one time, and where ends are
# not so close together as those of one operation mostly are
_CERTAIN_OF_LOCKSTEP = 45.0
_CLOSE_NS = 7_000.0
# share of evidence that counts for this where it may be of lockstep, too: of messages without direction
# (exchanges of stages are a constant time apart), and of other units of a machine (they do the same)
_LOCKSTEP_SHARE = 0.25
_DOUBT_MARGIN = 1.02  # rivals are known less precisely than the best
_CLEAR_MARGIN = 25.0  # enough to add several units in one pass

# Score of a candidate, number of its unit, the candidate, and evidence of the other units close to it.
_Scored = tuple[float, int, Candidate, float]


class Choice(Struct, frozen=True, kw_only=True):
    """The best correction of a unit: domains that were tied to each other before.

    Attributes:
        unit: The unit.
        line: Its correction.
        margin: Evidence beyond that of the best rival.
        rival_distances: Of rivals that explain nearly as much.
        weakness_ns: How far the truth may be if it is recorded UTC, where operations in lockstep could
            explain the correction; else 0.
        sharpest_ns: Least scatter of the channels that support it; infinite where too few operations show it.
    """

    unit: Timeline
    line: Line
    margin: float
    rival_distances: RivalDistances
    weakness_ns: float
    sharpest_ns: float

    @property
    def is_clear(self) -> bool:
        """Whether no rival comes near it."""
        return self.rival_distances.any_ns == 0.0 and self.margin > _CLEAR_MARGIN


def choose(
    timeline: Timeline,
    joint: list[Timeline],
    prior: Prior,
    scatter_ns: float | None,
) -> Choice | None:
    """Choose the correction of the unit with most evidence, by the operations of all units jointly.

    Args:
        timeline: The timeline.
        joint: Units of one machine that is not on the timeline, or a single unit; at least one.
        prior: Where their clocks are expected.
        scatter_ns: Scatter of the ends of one operation in this run; None as long as it is not known.

    Returns:
        The choice; None without enough evidence.
    """
    center, _ = prior.expect(timeline, joint[0])
    scored = _score(timeline, joint, prior, scatter_ns)
    if not scored:
        return None
    # of the units that support the best hypothesis, the one with most operations of its own: the others may
    # owe their score to it, and have better candidates of their own
    likely = max(scored, key=lambda choice: choice[0])[2].line
    of_unit: dict[int, _Scored] = {}
    for choice in sorted(scored, key=lambda choice: -choice[0]):
        if choice[2].line.distance_ns(likely) <= MAX_SESSION_DIFFERENCE_NS:
            of_unit.setdefault(choice[1], choice)
    score, number, best, others = max(of_unit.values(), key=lambda choice: choice[2].evidence)
    is_blunt = TOGETHER_NS < best.sharpest_ns < np.inf
    is_certain = score >= _MIN_EVIDENCE + is_blunt * _BLUNT
    if not is_certain and (is_blunt or best.evidence < _LEAST_EVIDENCE):
        return _choose_single(timeline, joint[0], prior) if len(joint) == 1 else None
    # candidates of other units of the machine within the error of its UTC are the same hypothesis
    rivals = [
        (other, candidate, joint_evidence) for other, owner, candidate, joint_evidence in scored
        if candidate is not best
        and (owner == number or candidate.line.distance_ns(best.line) > MAX_SESSION_DIFFERENCE_NS)
    ]  # fmt: skip
    # also those that only the other units of the machine speak against, as these do the same at the same time
    close = [
        rival.line.distance_ns(best.line) for other, rival, joint_evidence in rivals
        if other > score - _LEAST_EVIDENCE or other - joint_evidence > score - others
    ]  # fmt: skip
    is_shared = bool(timeline.machines & joint[0].machines)
    stepped = [
        distance_ns for _, rival, _ in rivals
        if is_shared
        and (distance_ns := rival.line.distance_ns(best.line)) > MAX_SESSION_DIFFERENCE_NS
        and rival.evidence > best.evidence + _STEP_EVIDENCE
    ]  # fmt: skip
    (utc_ns,) = prior.measure_offsets(timeline, joint[number], [best.line], center)
    if is_shared and utc_ns > TOGETHER_NS:
        # without communicators, groups of other stages in lockstep have more evidence than the few operations
        # that all ranks share
        close += [
            rival.line.distance_ns(best.line) for _, rival, _ in rivals
            if rival.evidence >= _LEAST_EVIDENCE and rival.line.distance_ns(center) <= TOGETHER_NS
        ]  # fmt: skip
    margin = score - max((other for other, *_ in rivals), default=0.0)
    certainty = margin - (1 - _LOCKSTEP_SHARE) * (best.exchange_evidence + others)
    # unrelated operations in lockstep could explain it: recorded UTC is a rival
    is_lockstep = is_shared or _CLOSE_NS < best.sharpest_ns < np.inf
    is_weak = certainty < (_CERTAIN_OF_LOCKSTEP if is_lockstep else _CERTAIN)
    return Choice(
        unit=joint[number],
        line=best.line,
        margin=margin,
        rival_distances=RivalDistances(
            _DOUBT_MARGIN * max(close, default=0.0), _DOUBT_MARGIN * max(stepped, default=0.0)
        ),
        weakness_ns=_doubt_utc(utc_ns, is_shared=is_shared) if is_weak else 0.0,
        sharpest_ns=best.sharpest_ns,
    )


def _doubt_utc(utc_ns: float, *, is_shared: bool) -> float:
    """Return how far the truth may be if it is recorded UTC, which has an error, too.

    Close to it the operations and UTC confirm each other.
    """
    if utc_ns <= SESSION_SCALE_NS:
        return 0.0
    return _DOUBT_MARGIN * (utc_ns + (0.0 if is_shared else _UTC_SCALE_NS))


def _score(
    timeline: Timeline, joint: list[Timeline], prior: Prior, scatter_ns: float | None
) -> list[_Scored]:
    """Score the candidates of all units.

    Own evidence, probability, and evidence of the other units close to it.
    """
    center, width_ns = prior.expect(timeline, joint[0])
    candidates = [
        find_candidates(
            merged,
            timeline.keep_keys(merged.key),
            center,
            width_ns,
            scatter_ns,
            near_ns=TOGETHER_NS if timeline.machines & joint[0].machines else 0.0,
        )
        if len(merged)
        else []
        for merged in (unit.merge_operations() for unit in joint)
    ]
    rows = [stack_lines([candidate.line for candidate in own]) for own in candidates]
    scored: list[_Scored] = []
    for number, own in enumerate(candidates):
        joint_evidence = np.zeros(len(own))
        for other, rivals in enumerate(candidates):
            if other != number and own and rivals:
                joint_evidence += _find_near_evidence(rows[number], rows[other], rivals)
        probabilities = prior.weigh(timeline, joint[number], [candidate.line for candidate in own], center)
        for candidate, probability, others in zip(own, probabilities, joint_evidence.tolist(), strict=True):
            # less the log probability of the drift, relative to none, with a normal distribution
            score = candidate.evidence - 0.5 * (candidate.line.rate / DRIFT_SIGMA) ** 2 + probability
            scored.append((score + others, number, candidate, others))
    return scored


def _find_near_evidence(lines: Floats, rows: Floats, rivals: list[Candidate]) -> Floats:
    """Find the most evidence of rivals close to each line; 0 without any.

    Args:
        lines: Offset, rate and center of each, in columns.
        rows: The same of each rival.
        rivals: One or more.
    """
    distances = np.stack([measure_distances(rows, line) for line in lines])
    evidence = np.array([rival.evidence for rival in rivals])
    return np.asarray(
        np.where(distances <= MAX_SESSION_DIFFERENCE_NS, evidence, 0.0).max(axis=1)
    )  # candidates have evidence above 0


def _choose_single(timeline: Timeline, unit: Timeline, prior: Prior) -> Choice | None:
    """Choose a correction by keys with a single operation on both sides.

    That is no evidence that UTC was stepped between sessions of a machine, nor against the recorded UTC of
    others: captures that begin and end at different times may have one operation each, of different steps.
    """
    events = unit.merge_operations()
    line = find_single(events, timeline.keep_keys(events.key)) if len(events) else None
    center, width_ns = prior.expect(timeline, unit)
    is_shared = bool(timeline.machines & unit.machines)
    if is_shared:
        width_ns = MAX_SESSION_DIFFERENCE_NS
    if line is None or line.distance_ns(center) > width_ns:
        return None
    (utc_ns,) = prior.measure_offsets(timeline, unit, [line], center)
    return Choice(
        unit=unit,
        line=line,
        margin=0.0,
        rival_distances=RivalDistances(),
        weakness_ns=_doubt_utc(utc_ns, is_shared=is_shared) if utc_ns < np.inf else 0.0,
        sharpest_ns=np.inf,
    )
