"""Twins: what a change of a run was predicted to gain, and what it gains in the simulator.

`python -m tests.worlds.twins --count 600 --seed 98100001 --processes 2 --write docs/accuracy.md` prints and writes the table.
A pair is a drawn world with one or two faults and the same world without, or a healthy world and the same one with another
number of micro-batches, another schedule, or stages of equal cost; random numbers are the same. `nsys-pp whatif` predicts
the second of the first one's reports. A third of the worlds has clocks that no prediction is made with; it is a refusal.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

import nsys_pp
from nsys_pp.errors import NsysPPError
from tests.worlds.draw import World, layout_of, to_arguments
from tests.worlds.scores import Truth, measure_compute
from tests.worlds.verdicts import (
    add_fault,
    draw_healthy,
    mean_step,
    run_main,
    share,
)
from tests.worlds.world import simulate_world

CHANGES = (
    *("rank", "rank since a step", "stage", "link", "host stall", "data stall", "slow loader"),
    *("rank and host stall", "stage and slow loader"),
    *("micro-batches", "schedule", "balance"),
)
_POINT = 0.01  # of a step: a prediction that leaves more open is a range


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinScore:
    """A prediction and the truth, in ns of a mean step."""

    seed: int
    change: str
    arguments: list[str]
    asked: str = ""
    step_ns: float = 0.0
    twin_ns: float = 0.0
    least_ns: float = 0.0
    most_ns: float = 0.0
    refused: str = ""
    failed: str = ""

    @property
    def gain_ns(self) -> float:
        return self.step_ns - self.twin_ns

    @property
    def is_range(self) -> bool:
        """Whether much is left open."""
        return self.most_ns - self.least_ns > _POINT * self.step_ns

    @property
    def is_right(self) -> bool:
        """Whether the gain is within 10 % of the true one, or 0.3 % of the step; a range, if it holds the truth."""
        apart = max(0.1 * abs(self.gain_ns), 0.003 * self.step_ns)
        least, most = self.least_ns, self.most_ns
        if not self.is_range:
            least = most = (least + most) / 2
        return least - apart <= self.gain_ns <= most + apart


def draw_pair(seed: int, change: str) -> tuple[World, World, dict[str, Any]] | None:
    """Draw a world, its twin, and the question that leads from one to the other; None: the world cannot have it."""
    if change in ("micro-batches", "schedule", "balance"):
        return _draw_change(seed, change)
    healthy = draw_healthy(seed, drift_ppm=None)
    world, heal = healthy, list[str]()
    for fault in change.split(" and "):
        world, target = add_fault(world, fault)
        if not target:
            return None
        words = target.split()
        if fault == "link":
            heal.append(f"link={words[1]}-{words[4]}")
        elif fault == "data stall":
            ranks = int(str(world["pp"])) * int(str(world["dp"])) * int(str(world["tp"]))
            heal += [f"host={rank}" for rank in range(ranks)]
        else:
            subject = {"stage": "stage", "host stall": "host", "slow loader": "data"}.get(fault, "rank")
            heal.append(subject if subject == "data" else f"{subject}={words[1]}")
    return world, healthy, {"heal": heal}


def _draw_change(seed: int, change: str) -> tuple[World, World, dict[str, Any]] | None:
    """Draw a healthy world, and a twin with other jobs; a chunk has half of the layers where there are twice as many."""
    random = Random(f"{seed} {change}")
    world = draw_healthy(seed, drift_ppm=None, layers=2, unnamed_weights=None)
    pp, recorded, count = int(str(world["pp"])), str(world["schedule"]), int(str(world["micro-batches"]))
    if change == "micro-batches":
        least = 2 * pp if recorded == "dualpipev" else 1
        asked = {"micro_batches": max(least, round(count * random.choice((0.5, 2, 3))))}
        return world, {**world, "micro-batches": asked["micro_batches"]}, asked
    if pp == 1:
        return None
    if change == "balance":
        world = {**world, "stage-costs": ",".join(str(round(random.uniform(0.7, 1.3), 2)) for _ in range(pp))}
        return world, world, {"balance": True}
    chosen = random.choice([name for name in ("gpipe", "1f1b", "zb-h1", "interleaved") if name != recorded])
    if recorded in ("interleaved", "dualpipev"):
        world = {**world, "schedule": "1f1b", "chunks": None}
        chosen = random.choice(("gpipe", "zb-h1", "interleaved"))
    if chosen == "interleaved" and int(str(world["layers"])) < 2:
        return None
    more = {"chunks": 2, "layers": 1} if chosen == "interleaved" else {}
    return world, {**world, "schedule": chosen, **more}, {"schedule": chosen}


def score_twins(seed: int) -> list[TwinScore]:
    """Simulate a pair, and predict the second from the first; no score where the world cannot have the change."""
    change = CHANGES[seed % len(CHANGES)]
    drawn = draw_pair(seed, change)
    if drawn is None:
        return []
    world, twin, question = drawn
    facts: dict[str, Any] = {
        "seed": seed,
        "change": change,
        "arguments": to_arguments(world),
        "asked": str(question),
    }
    with (
        TemporaryDirectory(prefix="twin-") as name,
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        folder, other = Path(name, "run"), Path(name, "twin")
        try:
            simulate_world(str(folder), to_arguments(world))
            if change == "balance":
                twin = {**world, "stage-costs": _balance(str(world["stage-costs"]), Truth(folder))}
            simulate_world(str(other), to_arguments(twin))
        except (NsysPPError, RuntimeError) as error:
            return [TwinScore(**facts, failed=str(error))]
        for one, at in (("step_ns", folder), ("twin_ns", other)):
            facts[one] = mean_step(Truth(at).table("steps"))
        try:
            found = nsys_pp.whatif(folder, layout=layout_of(world), **question)
        except NsysPPError as error:
            return [TwinScore(**facts, refused=str(error))]
    row = found.predictions.row(-1, named=True)
    count = int(str(world["micro-batches"]))
    more = question.get("micro_batches", count) / count  # gains are against as many micro-batches
    least = (row["step_ns"] + row["gain_ns"]) / more - row["step_ns"]
    return [TwinScore(**facts, least_ns=least, most_ns=least + row["most_gain_ns"] - row["gain_ns"])]


def _balance(costs: str, truth: Truth) -> str:
    """Return costs of stages with which all compute as long, though some have embeddings or a loss."""
    times = measure_compute(truth).group_by("stage").agg(pl.col("compute_ns").mean()).sort("stage")
    factors = (
        pl.Series(list(map(float, costs.split(",")))) * times["compute_ns"].mean() / times["compute_ns"]
    ).round(4)
    return ",".join(map(str, factors))


def build_twin_table(scores: Sequence[TwinScore]) -> str:
    lines = [
        "| change | pairs | refused | predicted within 10 % or 0.3 % of a step | ranges that hold the truth"
        " | error in % of the step: median, 90 %, largest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    done = [score for score in scores if not score.failed]
    faults = [score for score in done if score.change in CHANGES[:-3]]
    for name, own in (
        *((change, [score for score in done if score.change == change]) for change in CHANGES),
        ("**all faults**", faults),
        ("**all**", done),
    ):
        if own:
            lines.append(_describe(name, own))
    return "\n".join(lines)


def _describe(name: str, scores: Sequence[TwinScore]) -> str:
    told = [score for score in scores if not score.refused]
    points = [score for score in told if not score.is_range]
    ranges = [score for score in told if score.is_range]
    errors = sorted(
        100 * abs((score.least_ns + score.most_ns) / 2 - score.gain_ns) / score.step_ns for score in points
    )
    tails = "-"
    if errors:
        tails = f"{median(errors):.2f}, {errors[(9 * len(errors)) // 10]:.2f}, {errors[-1]:.2f}"
    right, held = (sum(score.is_right for score in some) for some in (points, ranges))
    return (
        f"| {name} | {len(scores)} | {len(scores) - len(told)} | {share(right, len(points))}"
        f" | {held} of {len(ranges)} | {tails} |"
    )


if __name__ == "__main__":
    sys.exit(run_main("twins", score_twins, TwinScore, build_twin_table, __doc__))
