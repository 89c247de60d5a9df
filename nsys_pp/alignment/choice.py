"""Choice of the correction of a unit (domains that were tied to each other before) by the evidence, and its doubt.

A training repeats itself, so an offset that is wrong by a micro-batch or a step explains much as well. Where such a rival
explains nearly as much, the doubt is its distance.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from nsys_pp.alignment.candidates import Candidate, find_candidates, find_single, weigh_lines
from nsys_pp.alignment.lines import Line, measure_distances, stack_lines
from nsys_pp.alignment.pairs import TOGETHER_NS
from nsys_pp.alignment.prior import AT_UTC_NS, MAX_SESSION_DIFFERENCE_NS, SESSION_SCALE_NS, Prior, weigh_drift
from nsys_pp.alignment.timeline import RivalDistances, Timeline
from nsys_pp.arrays.types import Floats

THREADS = 2
"""Threads that compare: most of the work does not hold the interpreter's lock, and more would wait for it."""

_MIN_EVIDENCE = 1.0  # for sharing operations at all, after the improbability of the offset
_BLUNT = 5.0  # more of it where the operations do not end together
_LEAST_EVIDENCE = 12.0  # the same, however improbable the offset; recorded UTC is then a rival, as is a line by it with this evidence
_MARGIN = 12.0  # rivals with less evidence than the best by this are ruled out
_RELATIVE_MARGIN = 0.15  # the same, of the evidence of the best: operations are not independent
_CERTAIN = 40.0  # evidence that unrelated operations in lockstep seldom reach
_CERTAIN_IF_BLUNT = 80.0  # the same, of those that end together to more than `_SHARP_NS`
_SHARP_NS = 5e3
_EXCHANGE_CERTAINTY = 0.25  # evidence of messages without direction for this: exchanges of stages in lockstep are a constant time apart
_JOINT_CERTAINTY = (
    0.25  # evidence of the other units of a machine for this: they do the same at the same time
)
_DOUBT_MARGIN = 1.02  # rivals are known less precisely than the best
_STEP_EVIDENCE = 9.2  # for a rival, as much as makes up for how seldom UTC is stepped between sessions
_CLEAR_MARGIN = 25.0  # enough to add several units in one pass


_Scored = tuple[float, int, Candidate, float]
"""Score of a candidate, number of its unit, the candidate, and evidence of the other units close to it."""


class Choice(Struct, frozen=True, kw_only=True):
    """The best correction of a unit: domains that were tied to each other before.

    Attributes:
        unit: The unit.
        line: Its correction.
        rivals: Its other candidates.
        margin: Evidence beyond that of the best rival.
        evidence: Evidence of the line, by the operations of its unit alone.
        rival_distances: Of rivals that explain nearly as much.
        weakness_ns: Distance of recorded UTC, if the operations are few for how roughly they end together, or for messages;
            else 0.
        sharpest_ns: Least scatter of the channels that support it; infinite where too few operations show it.
    """

    unit: Timeline
    line: Line
    rivals: list[Line]
    margin: float
    evidence: float
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
    *,
    threads: int = THREADS,
) -> Choice | None:
    """Choose the correction of the unit with most evidence, by the operations of all units jointly.

    Args:
        timeline: The timeline.
        joint: Units of one machine that is not on the timeline, or a single unit; at least one.
        prior: Where their clocks are expected.
        scatter_ns: Scatter of the ends of one operation in this run; None as long as it is not known.
        threads: Number of threads that compare, if there is much to compare.

    Returns:
        The choice; None without enough evidence.
    """
    center, _ = prior.expect(timeline, joint[0])
    scored = _score(timeline, joint, prior, scatter_ns, threads)
    if not scored:
        return None
    score, number, best, others = _choose_unit(scored)
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
    margin = max(_MARGIN, _RELATIVE_MARGIN * score)
    # also those that only the other units of the machine speak against, as these do the same at the same time
    close = [
        rival.line.distance_ns(best.line) for other, rival, joint_evidence in rivals
        if other > score - margin or other - joint_evidence > score - others
    ]  # fmt: skip
    is_shared = bool(timeline.find_shared(joint[0]))
    stepped = [
        distance_ns for _, rival, _ in rivals
        if is_shared
        and (distance_ns := rival.line.distance_ns(best.line)) > MAX_SESSION_DIFFERENCE_NS
        and rival.evidence > best.evidence + _STEP_EVIDENCE
    ]  # fmt: skip
    (utc_ns,) = prior.measure_offsets(timeline, joint[number], [best.line], center)
    if is_shared and utc_ns > AT_UTC_NS:
        # without communicators, groups of other stages in lockstep have more evidence than the few operations that all ranks share
        close += [
            rival.line.distance_ns(best.line) for _, rival, _ in rivals
            if rival.evidence >= _LEAST_EVIDENCE and rival.line.distance_ns(center) <= AT_UTC_NS
        ]  # fmt: skip
    if score < _CERTAIN:  # unrelated operations in lockstep could explain it: recorded UTC is a rival
        close.append(utc_ns)
    certainty = score - (1 - _EXCHANGE_CERTAINTY) * best.exchange_evidence - (1 - _JOINT_CERTAINTY) * others
    is_weak = certainty < _CERTAIN or (best.sharpest_ns > _SHARP_NS and score < _CERTAIN_IF_BLUNT)
    return Choice(
        unit=joint[number],
        line=best.line,
        rivals=[
            candidate.line for _, owner, candidate, _ in scored if owner == number and candidate is not best
        ],
        margin=score - max((other for other, *_ in rivals), default=0.0),
        evidence=best.evidence,
        rival_distances=RivalDistances(
            _DOUBT_MARGIN * max(close, default=0.0), _DOUBT_MARGIN * max(stepped, default=0.0)
        ),
        # sessions of a machine always differ by some
        weakness_ns=_DOUBT_MARGIN * utc_ns if is_weak and utc_ns > SESSION_SCALE_NS else 0.0,
        sharpest_ns=best.sharpest_ns,
    )


def expect_margin(timeline: Timeline, before: Choice, scatter_ns: float | None) -> float:
    """Expect the margin of a unit, by its choice before operations were added to the timeline.

    Args:
        timeline: The timeline.
        before: The choice, by operations that are on the timeline still.
        scatter_ns: Scatter of the ends of one operation in this run; None as long as it is not known.

    Returns:
        The margin of that choice, and what the evidence of its line has become more.
    """
    events = before.unit.merge_operations()
    (evidence,) = weigh_lines(events, timeline.keep_keys(events.key), [before.line], scatter_ns)
    return before.margin + max(evidence - before.evidence, 0.0)


def is_best(
    timeline: Timeline, unit: Timeline, line: Line, rivals: list[Line], prior: Prior, scatter_ns: float | None
) -> bool:
    """Whether the operations of a timeline, and probability, prefer a correction of a unit to its rivals."""
    center, _ = prior.expect(timeline, unit)
    merged = unit.merge_operations()
    reference = timeline.keep_keys(merged.key)
    if not len(merged) or not len(reference):
        return True
    lines = [line, *rivals]
    probabilities = prior.weigh(timeline, unit, lines, center)
    evidence = weigh_lines(merged, reference, lines, scatter_ns)
    scores = [
        own + weigh_drift(one) + probability
        for one, own, probability in zip(lines, evidence, probabilities, strict=True)
    ]
    return scores[0] >= max(scores)


def _score(
    timeline: Timeline, joint: list[Timeline], prior: Prior, scatter_ns: float | None, threads: int
) -> list[_Scored]:
    """Score the candidates of all units: own evidence, probability, and evidence of the other units close to it."""
    center, width_ns = prior.expect(timeline, joint[0])
    near_ns = AT_UTC_NS if timeline.find_shared(joint[0]) else 0.0
    candidates = [
        find_candidates(
            merged,
            timeline.keep_keys(merged.key),
            center,
            width_ns,
            scatter_ns,
            near_ns=near_ns,
            threads=threads,
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
        lines = [candidate.line for candidate in own]
        probabilities = prior.weigh(timeline, joint[number], lines, center)
        for candidate, probability, others in zip(own, probabilities, joint_evidence.tolist(), strict=True):
            score = candidate.evidence + weigh_drift(candidate.line) + probability
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
    near: Floats = np.where(distances <= MAX_SESSION_DIFFERENCE_NS, evidence, 0.0).max(axis=1)
    return near  # candidates have evidence above 0


def _choose_single(timeline: Timeline, unit: Timeline, prior: Prior) -> Choice | None:
    """Choose a correction by keys with a single operation on both sides.

    That is no evidence that UTC was stepped between sessions of a machine, nor against the recorded UTC of others: captures that
    begin and end at different times may have one operation each, of different steps.
    """
    events = unit.merge_operations()
    line = find_single(events, timeline.keep_keys(events.key)) if len(events) else None
    center, width_ns = prior.expect(timeline, unit)
    if timeline.find_shared(unit):
        width_ns = MAX_SESSION_DIFFERENCE_NS
    if line is None or line.distance_ns(center) > width_ns:
        return None
    (utc_ns,) = prior.measure_offsets(timeline, unit, [line], center)
    is_far = SESSION_SCALE_NS < utc_ns < np.inf
    return Choice(
        unit=unit,
        line=line,
        rivals=[],
        margin=0.0,
        evidence=0.0,
        rival_distances=RivalDistances(),
        weakness_ns=_DOUBT_MARGIN * utc_ns if is_far else 0.0,
        sharpest_ns=np.inf,
    )


def _choose_unit(scored: list[_Scored]) -> _Scored:
    """Choose, of the units of a machine that support the best hypothesis, the one with most operations of its own.

    The others may owe their score to it, and have better candidates of their own.

    Args:
        scored: At least one.
    """
    of_unit: dict[int, _Scored] = {}
    ranked = sorted(scored, key=lambda choice: -choice[0])
    best = ranked[0][2].line
    for choice in ranked:
        if choice[2].line.distance_ns(best) <= MAX_SESSION_DIFFERENCE_NS:
            of_unit.setdefault(choice[1], choice)
    return max(of_unit.values(), key=lambda choice: choice[2].evidence)
