"""Descriptions of what a world breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tests.worlds.tables import POINTS_LIMIT, show_us
from tests.worlds.world import WorldScore

_LEAST_UNPAIRED = 0.02  # share of messages


class Break(NamedTuple):
    """A result that truth contradicts: its kind in a word, and a short sentence."""

    kind: str
    text: str


def list_breaks(score: WorldScore) -> list[Break]:
    """List what a world breaks."""
    if score.error:
        return [Break("failure", score.error)]
    if score.refused:
        return [Break("refusal", f"refused: {score.refused}")] if score.has_jobs else []
    right = "" if score.has_right_clocks else " (clocks wrong)"
    dependent = (*_pairs(score), *_causes(score), *_stragglers(score))
    return [
        *_clocks(score),
        *(Break(kind, f"{text}{right}") for kind, text in dependent),
        *_steps(score),
        *_jobs(score),
        *_ranges(score),
    ]


def _clocks(score: WorldScore) -> Iterator[Break]:
    clocks = score.clocks
    if clocks is None:
        return
    if not clocks.holds:
        at, broken = int(np.argmax(clocks.factors)), sum(factor > 1 for factor in clocks.factors)
        yield Break(
            "bounds",
            f"bound broken {clocks.factors[at]:.1f} times: error {show_us(clocks.errors_ns[at])},"
            f" bound {show_us(clocks.bounds_ns[at])}, {broken} of {len(clocks.factors)} reports",
        )
    if clocks.groups > clocks.true_groups:
        yield Break("groups", f"{clocks.groups} groups of clocks, {clocks.true_groups} in truth")


def _pairs(score: WorldScore) -> Iterator[Break]:
    for way, pairs in score.pairs.items():
        if pairs.wrong:
            yield Break("pairs", f"{pairs.wrong} of {pairs.messages} pairs wrong {way}")
        if pairs.unpaired > _LEAST_UNPAIRED * pairs.messages:
            yield Break("unpaired", f"{pairs.unpaired} of {pairs.messages} messages unpaired {way}")


def _causes(score: WorldScore) -> Iterator[Break]:
    whole = [step for step in score.causes.steps if step.is_whole] if score.causes is not None else []
    if whole:
        worst = max(whole, key=lambda step: step.worst[0])
        if worst.worst[0] > POINTS_LIMIT:
            excess, cause = worst.worst
            text = f"{cause} wrong by {excess:+.1f} points (rank {worst.rank}, step {worst.step})"
            yield Break("causes", text)


def _stragglers(score: WorldScore) -> Iterator[Break]:
    if score.stragglers is not None and score.stragglers.false:
        false = score.stragglers.false
        yield Break("stragglers", f"{len(false)} false stragglers: {false[0]}")


def _ranges(score: WorldScore) -> Iterator[Break]:
    if score.ranges is not None and (wrong := score.ranges.wrong + score.ranges.missing):
        yield Break("ranges", f"{wrong} of {score.ranges.ranges} ranges of jobs with a wrong interval")


def _steps(score: WorldScore) -> Iterator[Break]:
    for name in ("lacking", "called_partial", "called_complete", "misnumbered"):
        if score.causes is not None and (count := getattr(score.causes, name)):
            yield Break("steps", f"steps: {count} {name.replace('_', ' ')}")


def _jobs(score: WorldScore) -> Iterator[Break]:
    for way, jobs in score.jobs.items():
        if jobs.schedule == "wrong":
            yield Break("schedule", f"wrong schedule {way}")
        for name, kind in {
            "missing": "jobs",
            "extra": "jobs",
            "wrong_ids": "ids",
            "wrong_stages": "stages",
        }.items():
            if count := getattr(jobs, name):
                yield Break(kind, f"{count} of {jobs.jobs} jobs: {name.replace('_', ' ')} {way}")
