"""Tables of the scores of many worlds, what single worlds break, and files of scores."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.worlds.scores import ClockScore, PairScore, StepScore
from tests.worlds.world import LAYOUT, PLAIN, WorldScore

POINTS_LIMIT = 2.0  # of a step, for a cause


_STEP_GROUPS = {"1": (1, 1), "2": (2, 2), "3 and 4": (3, 4), "5 to 10": (5, 10)}


_WAYS = {PLAIN: "without `--layout`", LAYOUT: "with `--layout`"}


_Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __str__(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "\n".join((f"### {self.title}", "", *(f"| {' | '.join(line)} |" for line in lines)))


def build_tables(scores: Sequence[WorldScore]) -> list[Table]:
    done = [score for score in scores if not score.error and not score.refused]
    tables = [
        _worlds(scores),
        _clocks(done),
        _groups(done),
        _pairs(done),
        _causes(done),
        _steps(done),
        _jobs(done),
    ]
    return [table for table in tables if table.rows]


def show_us(value_ns: float) -> str:
    """Return a duration with its unit; infinite: unknown."""
    if math.isinf(value_ns):
        return "unknown"
    return f"{value_ns / 1e6:,.1f} ms" if value_ns >= 1e6 else f"{value_ns / 1e3:,.1f} us"


def _worlds(scores: Sequence[WorldScore]) -> Table:
    seconds = sorted(score.seconds for score in scores)
    rows = [
        ("worlds", str(len(scores))),
        ("simulator or library failed", _share(sum(bool(score.error) for score in scores), len(scores))),
        (
            "refused, with recorded jobs",
            _share(sum(bool(score.refused) and score.has_jobs for score in scores), len(scores)),
        ),
        (
            "refused, without any",
            _share(sum(bool(score.refused) and not score.has_jobs for score in scores), len(scores)),
        ),
        (
            "seconds of a world",
            " / ".join(f"{value:.1f}" for value in _quantiles(seconds)) if seconds else "",
        ),
    ]
    return Table("Worlds", ("", "count, or median / 90 % / 99 % / largest"), rows)


def _clocks(scores: Sequence[WorldScore]) -> Table:
    clocks = [score.clocks for score in scores if score.clocks is not None]
    factors = _flatten(part.factors for part in clocks)
    bounds = _flatten(part.bounds_ns for part in clocks)
    rows = [
        _row("error", _flatten(part.errors_ns for part in clocks), show_us),
        _row("bound", bounds, show_us),
        _row("error over bound", factors, lambda value: f"{value:,.2f}"),
        _row(
            "error of the rate, ppm",
            [abs(rate) for part in clocks for rate in part.rates_ppm],
            lambda value: f"{value:,.2f}",
        ),
    ]
    broken = [factor for factor in factors if factor > 1]
    counts = [
        ("bound broken", _share(len(broken), len(factors))),
        ("bound broken more than 3 times", _share(sum(factor > 3 for factor in broken), len(factors))),
        ("bound unknown", _share(sum(map(math.isinf, bounds)), len(bounds))),
    ]
    rows += [(name, text, "", "", "") for name, text in counts] if factors else []
    return _table(f"Clocks of {len(factors):,} reports", rows)


def _groups(scores: Sequence[WorldScore]) -> Table:
    rows = []
    several = [(score, score.clocks) for score in scores if score.clocks and len(score.clocks.errors_ns) > 1]
    for name, (least, most) in _STEP_GROUPS.items():
        own = [clocks for score, clocks in several if least <= score.steps <= most]
        if own:
            rows.append((name, *_count_groups(own)))
    header = ("steps", "more groups than in truth", "fewer", "not more, all bounds known, all held")
    return Table("Groups of clocks, worlds with two reports or more", header, rows)


def _count_groups(clocks: Sequence[ClockScore]) -> tuple[str, str, str]:
    return (
        _share(sum(part.groups > part.true_groups for part in clocks), len(clocks)),
        _share(sum(part.groups < part.true_groups for part in clocks), len(clocks)),
        _share(sum(part.is_right for part in clocks), len(clocks)),
    )


def _pairs(scores: Sequence[WorldScore]) -> Table:
    rows = []
    for way, words in _WAYS.items():
        for name, chosen in (
            ("clocks known to 1 ms", [score for score in scores if score.has_known_clocks]),
            ("bounds held", [score for score in scores if score.has_right_clocks]),
            ("all", scores),
        ):
            pairs = [score.pairs[way] for score in chosen if way in score.pairs]
            if sum(part.messages for part in pairs):
                rows.append((f"{words}, {name}", *_count_pairs(pairs)))
    header = (
        "worlds",
        "messages",
        "paired wrongly, of pairs",
        "not paired, of messages",
        "worlds with wrong pairs",
    )
    return Table("Messages", header, rows)


def _count_pairs(pairs: Sequence[PairScore]) -> tuple[str, str, str, str]:
    messages = sum(part.messages for part in pairs)
    wrong = sum(part.wrong for part in pairs)
    return (
        f"{messages:,}",
        _share(wrong, wrong + sum(part.right for part in pairs)),
        _share(sum(part.unpaired for part in pairs), messages),
        _share(sum(part.wrong > 0 for part in pairs), len(pairs)),
    )


def _causes(scores: Sequence[WorldScore]) -> Table:
    """Errors of causes, in worlds whose bounds held and steps that all ranks recorded."""
    steps = [
        step
        for score in scores
        if score.causes is not None and score.has_right_clocks
        for step in score.causes.steps
        if step.is_whole
    ]
    rows = []
    if steps:
        rows.append(("largest excess of a cause", "", "", *_points([step.worst[0] for step in steps])))
        within = sum(step.worst[0] <= POINTS_LIMIT for step in steps)
        rows.append((f"within {POINTS_LIMIT:.0f} points", _share(within, len(steps)), "", "", "", "", ""))
    for cause in sorted({cause for step in steps for cause in step.points}):
        rows.append(
            (
                f"`{cause}`",
                *_sums(steps, cause),
                *_points([abs(step.points.get(cause, 0.0)) for step in steps]),
            )
        )
    header = ("cause", "true ms", "found ms", "median", "90 %", "99 %", "largest")
    return Table(f"Causes, {len(steps):,} steps of lanes: errors in percent of the step", header, rows)


def _sums(steps: Sequence[StepScore], cause: str) -> tuple[str, str]:
    sums = (
        sum(getattr(step, name).get(cause, 0) for step in steps) / 1e6 for name in ("true_ns", "found_ns")
    )
    return tuple(f"{value:,.0f}" for value in sums)  # type: ignore[return-value]


def _steps(scores: Sequence[WorldScore]) -> Table:
    parts = [score.causes for score in scores if score.causes is not None]
    rows = []
    for position in ("first", "middle", "last", "only"):
        own = [abs(step.bubble_points) for part in parts for step in part.steps if step.position == position]
        if own:
            rows.append((f"bubble of the {position} complete step, points", *_points(own)))
    for name in ("lacking", "called_partial", "called_complete", "misnumbered") if parts else ():
        rows.append((name.replace("_", " "), str(sum(getattr(part, name) for part in parts)), "", "", ""))
    return _table("Steps", rows)


def _jobs(scores: Sequence[WorldScore]) -> Table:
    rows = []
    for way, words in _WAYS.items():
        jobs = [score.jobs[way] for score in scores if way in score.jobs]
        if not jobs:
            continue
        count, lanes = sum(part.jobs for part in jobs), sum(part.lanes for part in jobs)
        for name in ("missing", "extra", "wrong_ids", "unknown_ids"):
            rows.append(
                (
                    f"jobs {words}: {name.replace('_', ' ')}",
                    _share(sum(getattr(part, name) for part in jobs), count),
                )
            )
        for word in ("right", "wrong", "called uncertain", "unknown"):
            rows.append(
                (f"schedule {words}: {word}", _share(sum(part.schedule == word for part in jobs), len(jobs)))
            )
        rows.append((f"stages {words}: right", _share(sum(part.stages for part in jobs), lanes)))
        rows.append((f"stages {words}: wrong", _share(sum(part.wrong_stages for part in jobs), lanes)))
        rows.append((f"largest error of a job {words}", f"{max(part.largest_error_ns for part in jobs)} ns"))
    ranges = [score.ranges for score in scores if score.ranges is not None]
    if ranges:
        count = sum(part.ranges for part in ranges)
        rows.append(
            (
                "ranges of jobs: wrong interval",
                _share(sum(part.wrong + part.missing for part in ranges), count),
            )
        )
    stragglers = [score.stragglers for score in scores if score.stragglers is not None]
    if stragglers:
        false = sum(bool(part.false) for part in stragglers)
        rows.append(("worlds with false stragglers", _share(false, len(stragglers))))
    return Table("Jobs, schedules and stragglers", ("", "count"), rows)


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, ("", "median", "90 %", "99 %", "largest"), rows)


def _row(name: str, values: Sequence[float], show: _Show) -> tuple[str, ...]:
    return (name, *map(show, _quantiles(values))) if values else (name, "", "", "", "")


def _points(values: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in _quantiles(values))


def _quantiles(values: Sequence[float]) -> list[float]:
    """Return median, 90 %, 99 % and maximum of values."""
    ordered = sorted(values)
    return [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.99, 1.0)]


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} ({100 * count / total:.2f} %)" if total else "none"


def _flatten(parts: object) -> list[float]:
    return [value for part in parts for value in part]  # type: ignore[attr-defined]


_LEAST_UNPAIRED = 0.02  # share of messages


class Break(NamedTuple):
    """A result that truth contradicts: its kind in a word, and a short sentence."""

    kind: str
    text: str


def list_breaks(score: WorldScore) -> list[Break]:
    if score.error:
        return [Break("failure", score.error)]
    if score.refused:
        return [Break("refusal", f"refused: {score.refused}")] if score.has_jobs else []
    right = "" if score.has_right_clocks else " (clocks wrong)"
    dependent = (*_break_pairs(score), *_break_causes(score), *_break_stragglers(score))
    return [
        *_break_clocks(score),
        *(Break(kind, f"{text}{right}") for kind, text in dependent),
        *_break_steps(score),
        *_break_jobs(score),
        *_break_ranges(score),
    ]


def _break_clocks(score: WorldScore) -> Iterator[Break]:
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


def _break_pairs(score: WorldScore) -> Iterator[Break]:
    for way, pairs in score.pairs.items():
        if pairs.wrong:
            yield Break("pairs", f"{pairs.wrong} of {pairs.messages} pairs wrong {way}")
        if pairs.unpaired > _LEAST_UNPAIRED * pairs.messages:
            yield Break("unpaired", f"{pairs.unpaired} of {pairs.messages} messages unpaired {way}")


def _break_causes(score: WorldScore) -> Iterator[Break]:
    whole = [step for step in score.causes.steps if step.is_whole] if score.causes is not None else []
    if whole:
        worst = max(whole, key=lambda step: step.worst[0])
        if worst.worst[0] > POINTS_LIMIT:
            excess, cause = worst.worst
            text = f"{cause} wrong by {excess:+.1f} points (rank {worst.rank}, step {worst.step})"
            yield Break("causes", text)


def _break_stragglers(score: WorldScore) -> Iterator[Break]:
    if score.stragglers is not None and score.stragglers.false:
        false = score.stragglers.false
        yield Break("stragglers", f"{len(false)} false stragglers: {false[0]}")


def _break_ranges(score: WorldScore) -> Iterator[Break]:
    if score.ranges is not None and (wrong := score.ranges.wrong + score.ranges.missing):
        yield Break("ranges", f"{wrong} of {score.ranges.ranges} ranges of jobs with a wrong interval")


def _break_steps(score: WorldScore) -> Iterator[Break]:
    for name in ("lacking", "called_partial", "called_complete", "misnumbered"):
        if score.causes is not None and (count := getattr(score.causes, name)):
            yield Break("steps", f"steps: {count} {name.replace('_', ' ')}")


def _break_jobs(score: WorldScore) -> Iterator[Break]:
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


def append_score(path: Path | None, score: WorldScore) -> None:
    if path is not None:
        with path.open("ab") as file:
            pickle.dump(score, file)


def read_scores(path: Path | None) -> Iterator[WorldScore]:
    """Read the scores of a file, in order; none if it does not exist."""
    if path is None or not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def write_tables(path: Path, mark: str, tables: Sequence[Table | str]) -> None:
    """Replace the tables between the marks `mark` and `end of mark` of a Markdown file."""
    text = path.read_text()
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    between = re.compile(f"{begin}.*{end}", re.DOTALL)
    if not between.search(text):
        raise SystemExit(f"{path} has no `{begin}` and `{end}`")
    body = "\n\n".join((begin, *map(str, tables), end))
    path.write_text(between.sub(lambda _: body, text))
