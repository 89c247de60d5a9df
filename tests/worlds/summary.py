"""Tables of the scores of many worlds: distributions, and counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tests.worlds.causes import StepScore
from tests.worlds.jobs import JobScore
from tests.worlds.pairs import PairScore
from tests.worlds.world import LAYOUT, PLAIN, WorldScore

_STEP_GROUPS = {"1 step": (1, 1), "2 steps": (2, 2), "3 or 4": (3, 4), "5 or more": (5, 99)}
_POINTS_LIMIT = 2.0
_BUBBLE_LIMIT = 0.5


def summarise(scores: Sequence[WorldScore]) -> str:
    """Return the tables as text."""
    run = [score for score in scores if not score.error and not score.refused]
    lines = [
        f"{len(scores)} worlds, {sum(bool(score.error) for score in scores)} failed,"
        f" {sum(bool(score.refused) for score in scores)} refused;"
        f" {sum(score.seconds for score in scores) / max(len(scores), 1):.1f} s each"
    ]
    for part in (_clocks, _pairs, _causes, _steps, _jobs, _stragglers):
        lines += part(run)
    return "\n".join(lines)


def breaks(score: WorldScore) -> list[str]:
    """List what a world breaks, in short sentences."""
    if score.error or score.refused:
        return [score.error or f"refused: {score.refused}"]
    found = []
    if (clocks := score.clocks) is not None:
        if not clocks.holds:
            at = int(np.argmax(clocks.factors))
            found.append(
                f"bound broken {clocks.factors[at]:.1f} times: error {_us(clocks.errors_ns[at])}, bound {_us(clocks.bounds_ns[at])},"
                f" {sum(factor > 1 for factor in clocks.factors)} of {len(clocks.factors)} reports"
            )
        if clocks.groups != clocks.true_groups:
            found.append(f"{clocks.groups} groups of clocks, {clocks.true_groups} in truth")
    right = "" if score.has_right_clocks else " (clocks wrong)"
    for way, pairs in score.pairs.items():
        if pairs.wrong:
            found.append(f"{pairs.wrong} of {pairs.messages} pairs wrong {way}{right}")
        if pairs.unpaired > 0.02 * pairs.messages:
            found.append(f"{pairs.unpaired} of {pairs.messages} messages unpaired {way}{right}")
    if (causes := score.causes) is not None:
        if whole := [step for step in causes.steps if step.is_whole]:
            worst = max(whole, key=lambda step: step.worst[0])
            if worst.worst[0] > _POINTS_LIMIT:
                found.append(
                    f"{worst.worst[1]} wrong by {worst.points[worst.worst[1]]:+.1f} points (rank {worst.rank}, step {worst.step}){right}"
                )
        for name in ("lacking", "called_partial", "called_complete", "misnumbered"):
            if count := getattr(causes, name):
                found.append(f"steps: {count} {name.replace('_', ' ')}")
    for way, jobs in score.jobs.items():
        if jobs.schedule == "wrong":
            found.append(f"wrong schedule {way}")
        for name in ("missing", "wrong_ids", "extra", "wrong_stages"):
            if count := getattr(jobs, name):
                found.append(f"{count} of {jobs.jobs} jobs: {name.replace('_', ' ')} {way}")
    if score.stragglers is not None and score.stragglers.false:
        found.append(f"{len(score.stragglers.false)} false stragglers: {score.stragglers.false[0]}{right}")
    return found


def _clocks(scores: Sequence[WorldScore]) -> Iterator[str]:
    clocks = [(score, score.clocks) for score in scores if score.clocks is not None]
    errors = [error for _, part in clocks for error in part.errors_ns]
    factors = [factor for _, part in clocks for factor in part.factors]
    bounds = [bound for _, part in clocks for bound in part.bounds_ns]
    broken = [factor for factor in factors if factor > 1]
    yield f"\nclocks: {len(errors)} reports"
    yield _distribution("  error", errors, _us)
    yield _distribution("  bound", bounds, _us)
    yield _distribution("  error over bound", factors, lambda value: f"{value:.2f}")
    yield f"  bound broken: {_share(len(broken), len(factors))}, by more than 3 times: {sum(f > 3 for f in broken)}, at most {max(broken, default=0):.1f} times"
    yield f"  bound unknown: {_share(sum(map(math.isinf, bounds)), len(bounds))}"
    yield _distribution(
        "  error of rate, ppm",
        [abs(rate) for _, part in clocks for rate in part.rates_ppm],
        lambda value: f"{value:.2f}",
    )
    several = [(score, part) for score, part in clocks if len(part.errors_ns) > 1]
    for name, (least, most) in _STEP_GROUPS.items():
        own = [part for score, part in several if least <= score.steps <= most]
        groups, right = (
            sum(part.groups == part.true_groups for part in own),
            sum(part.is_right for part in own),
        )
        torn = sum(part.groups > part.true_groups for part in own)
        yield f"  {name:10} groups of clocks as in truth {_share(groups, len(own))} (more: {torn}); also known and bounds held {_share(right, len(own))}"


def _pairs(scores: Sequence[WorldScore]) -> Iterator[str]:
    for way in (PLAIN, LAYOUT):
        for name, chosen in (
            ("clocks right", [score for score in scores if score.has_right_clocks]),
            ("all worlds", scores),
        ):
            pairs = [score.pairs[way] for score in chosen if way in score.pairs]
            if pairs:
                yield f"{chr(10) if way == PLAIN and name == 'clocks right' else ''}pairs, {way}, {name}: {_describe_pairs(pairs)}"


def _describe_pairs(pairs: Sequence[PairScore]) -> str:
    messages, wrong = sum(part.messages for part in pairs), sum(part.wrong for part in pairs)
    unpaired, made = sum(part.unpaired for part in pairs), sum(part.wrong + part.right for part in pairs)
    return (
        f"{messages} messages, wrong {_share(wrong, made)} (of replicas {sum(part.exchanged for part in pairs)}), unpaired {_share(unpaired, messages)};"
        f" worlds with wrong ones {_share(sum(part.wrong > 0 for part in pairs), len(pairs))}"
    )


def _causes(scores: Sequence[WorldScore]) -> Iterator[str]:
    every = [(score, step) for score in scores if score.causes is not None for step in score.causes.steps]
    right = [(score, step) for score, step in every if score.has_right_clocks]
    for name, steps in (
        ("clocks right, all ranks recorded the step", [step for _, step in right if step.is_whole]),
        ("clocks right, some ranks did not", [step for _, step in right if not step.is_whole]),
        ("all steps", [step for _, step in every]),
    ):
        if not steps:
            continue
        yield f"\ncauses, {name}: {len(steps)} steps of lanes"
        yield _distribution(
            "  worst cause, points", [step.worst[0] for step in steps], lambda value: f"{value:.2f}"
        )
        worse = sum(step.worst[0] > _POINTS_LIMIT for step in steps)
        yield f"  worse than {_POINTS_LIMIT:.0f} points: {_share(worse, len(steps))}"
        for cause in sorted({cause for step in steps for cause in step.points}):
            yield f"  {cause:16} {_describe_cause(steps, cause)}"


def _describe_cause(steps: Sequence[StepScore], cause: str) -> str:
    true = sum(step.true_ns.get(cause, 0) for step in steps) / 1e6
    found = sum(step.found_ns.get(cause, 0) for step in steps) / 1e6
    points = [abs(step.points.get(cause, 0.0)) for step in steps]
    return f"true {true:11.1f} ms, found {found:11.1f} ms; points {_quantiles(points, lambda value: f'{value:.2f}')}"


def _steps(scores: Sequence[WorldScore]) -> Iterator[str]:
    parts = [score.causes for score in scores if score.causes is not None]
    if not parts:
        return
    yield "\nsteps that are complete in truth"
    for position in ("first", "middle", "last", "only"):
        own = [step for part in parts for step in part.steps if step.position == position]
        if own:
            wrong = sum(abs(step.bubble_points) > _BUBBLE_LIMIT for step in own)
            yield (
                _distribution(
                    f"  bubble of {position}, points",
                    [abs(step.bubble_points) for step in own],
                    lambda value: f"{value:.2f}",
                )
                + f", mean {np.mean([step.bubble_points for step in own]):+.2f}, beyond {_BUBBLE_LIMIT}: {wrong}"
            )
    for name in ("lacking", "called_partial", "called_complete", "misnumbered"):
        yield f"  {name.replace('_', ' ')}: {sum(getattr(part, name) for part in parts)}"


def _jobs(scores: Sequence[WorldScore]) -> Iterator[str]:
    for way in (PLAIN, LAYOUT):
        jobs = [score.jobs[way] for score in scores if way in score.jobs]
        if jobs:
            yield f"\njobs, {way}: {_describe_jobs(jobs)}"
            schedules = [part.schedule for part in jobs]
            counts = ", ".join(
                f"{word} {_share(schedules.count(word), len(jobs))}" for word in ("right", "wrong", "unknown")
            )
            lanes = sum(part.lanes for part in jobs)
            yield f"  schedule: {counts}; stages right {_share(sum(part.stages for part in jobs), lanes)}, wrong {_share(sum(part.wrong_stages for part in jobs), lanes)}"


def _describe_jobs(jobs: Sequence[JobScore]) -> str:
    count = sum(part.jobs for part in jobs)
    sums = {
        name: sum(getattr(part, name) for part in jobs)
        for name in ("missing", "wrong_ids", "unknown_ids", "extra")
    }
    shares = ", ".join(f"{name.replace('_', ' ')} {_share(number, count)}" for name, number in sums.items())
    return f"{count} jobs, {shares}; largest error {max(part.largest_error_ns for part in jobs)} ns"


def _stragglers(scores: Sequence[WorldScore]) -> Iterator[str]:
    parts = [score.stragglers for score in scores if score.stragglers is not None]
    if parts:
        yield f"\nstragglers: {sum(len(part.false) for part in parts)} false in {sum(bool(part.false) for part in parts)} worlds, {sum(part.right for part in parts)} right"


def _distribution(name: str, values: Sequence[float], show: object) -> str:
    return f"{name:28} {_quantiles(values, show)}"


def _quantiles(values: Sequence[float], show: object) -> str:
    """Return median, 90 %, 99 % and maximum of values; infinite ones count as largest."""
    assert callable(show)
    if not len(values):
        return "none"
    ordered = sorted(values)
    at = [
        ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.99, 1.0)
    ]
    return "median {}, 90 % {}, 99 % {}, max {}".format(*map(show, at))


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / total:.1f} %)" if total else f"{count} of 0"


def _us(value_ns: float) -> str:
    if math.isinf(value_ns):
        return "unknown"
    return f"{value_ns / 1e6:.2f} ms" if value_ns >= 1e6 else f"{value_ns / 1e3:.1f} us"
