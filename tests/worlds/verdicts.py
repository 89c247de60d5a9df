"""Verdicts of random worlds: healthy ones, in which nothing should be named, and the same worlds with one fault each.

`python -m tests.worlds.verdicts --count 300 --seed 13000001 --write docs/accuracy.md` prints and writes the tables. A fault
is drawn for each world (rank, stage, link, or a stall of a host); its true cost is the difference of the mean step
to the healthy world with the same seed, whose random numbers are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.training import LEAST_MESSAGES, build_step_table
from nsys_pp.tables.verdict import build_verdict
from tests.worlds.draw import Value, World, draw_options, layout_of, repair, to_arguments
from tests.worlds.findings import Findings, analyse
from tests.worlds.scores import Truth, measure_compute
from tests.worlds.tables import write_tables
from tests.worlds.world import map_seeds, simulate_world

_COSTS = (0.0, 0.02, 0.05, float("inf"))


def build_verdict_tables(scores: Sequence[VerdictScore]) -> str:
    done = [score for score in scores if not score.failed]
    healthy = {score.seed: score for score in done if score.fault == "none"}
    faulty = [score for score in done if score.target and score.seed in healthy]
    return f"{_describe_healthy([*healthy.values()])}\n\n{_describe_faults(faulty, healthy)}"


def _describe_healthy(scores: Sequence[VerdictScore]) -> str:
    with_name = [score for score in scores if score.named]
    rows = [("any object named", len(with_name), sum(bool(score.false) for score in scores))]
    for kind in ("straggler rank", "straggler stage", "host", "link", "step"):
        named = [score for score in scores if any(text.startswith(kind) for text in score.named)]
        false = sum(bool(score.false) for score in named)
        rows.append((f"{kind} named", len(named), false))
    lines = [
        f"| {len(scores)} healthy worlds | worlds | contradicting the truth |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {share(count, len(scores))} | {share(false, len(scores))} |"
            for name, count, false in rows
        ),
    ]
    steps, slowest = sum(score.steps for score in scores), sum(score.slowest for score in scores)
    false_steps = sum(score.slowest_false for score in scores)
    lines.append(
        f"| `slowest_stage` of a step named | {share(slowest, steps)} | {share(false_steps, steps)} |"
    )
    return "\n".join(lines)


def _describe_faults(scores: Sequence[VerdictScore], healthy: dict[int, VerdictScore]) -> str:
    lines = [
        "| fault | true cost of a step | worlds | named | in the first line | claimed gain over true cost: median (10 to 90 %) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for fault in FAULTS[1:]:
        for least, most in pairwise(_COSTS):
            chosen = []
            for score in scores:
                cost = score.step_ns - healthy[score.seed].step_ns
                if score.fault == fault and least <= cost / healthy[score.seed].step_ns < most:
                    chosen.append((score, cost))
            if chosen:
                lines.append(_describe_class(fault, least, most, chosen))
    return "\n".join(lines)


def _describe_class(
    fault: str, least: float, most: float, chosen: Sequence[tuple[VerdictScore, float]]
) -> str:
    named = [(score, cost) for score, cost in chosen if score.position is not None]
    first = sum(score.position == 0 for score, _ in chosen)
    ratios = sorted(score.gain_ns / cost for score, cost in named if cost > 0)
    words = f"{100 * least:.0f} to {100 * most:.0f} %" if most < 1 else f"{100 * least:.0f} % or more"
    ratio = "-"
    if ratios and least > 0:
        ratio = (
            f"{median(ratios):.2f} ({ratios[len(ratios) // 10]:.2f} to {ratios[(9 * len(ratios)) // 10]:.2f})"
        )
    count = len(chosen)
    return f"| {fault} | {words} | {count} | {share(len(named), count)} | {share(first, count)} | {ratio} |"


def share(count: int, total: int) -> str:
    """Format a share of worlds."""
    return f"{count} of {total} ({100 * count / max(total, 1):.1f} %)"


FAULTS = (
    *("none", "rank", "rank since a step", "stage", "link", "host stall", "data stall"),
    *("slow loader", "evaluation", "checkpoint"),
)


_ABSENT = (  # of a healthy world: slowdowns, and options that make some steps, stages or hosts differ by design
    *("stage-costs", "slow-rank", "slow-link", "stall", "host-bound", "pauses", "loads", "machine-factors"),
    *("congestion", "restart-after", "vary-micro-batches", "evaluation-every", "checkpoint-every"),
    *("window-ms", "capture-steps", "missing-ranks", "graphs"),
)


_LEAST_TRUE_EXCESS = 0.02


_MOST_STEPS = 6


_FIRST_STEP = 10  # of the simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictScore:
    """The verdict of a world with one fault, or none."""

    seed: int
    fault: str
    target: str
    arguments: list[str]
    lines: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)  # objects of findings other than context
    false: list[str] = field(default_factory=list)  # statements that the truth contradicts
    position: int | None = None  # of the fault among the findings, from 0; None: not named
    gain_ns: float = 0.0  # claimed for the fault
    step_ns: float = 0.0
    slowest: int = 0  # steps with a slowest stage
    slowest_false: int = 0  # of these, whose stage does not compute longest
    steps: int = 0
    failed: str = ""


def draw_healthy(seed: int, **added: Value) -> World:
    """Draw a world without any fault but the added ones."""
    world = draw_options(seed)
    for name in _ABSENT:
        world[name] = None
    world["launcher"] = None  # ranks are known
    world["steps"] = min(_MOST_STEPS, int(str(world["steps"])))
    return repair({**world, **{name.replace("_", "-"): value for name, value in added.items()}})


def add_fault(world: World, fault: str) -> tuple[World, str]:
    """Add a fault to a healthy world; return it and the name of the faulty object, "" if the world cannot have it."""
    random = Random(f"{world['seed']} {fault}")
    changed = dict(world)
    pp, steps = int(str(world["pp"])), int(str(world["steps"]))
    ranks = pp * int(str(world["dp"])) * int(str(world["tp"]))
    rank, step = random.randrange(ranks), 10 + random.randrange(steps)
    factor = round(random.uniform(1.08, 1.5), 2)
    if fault == "rank" and ranks > 1:
        changed["slow-rank"] = f"{rank}={factor}"
    elif fault == "rank since a step" and ranks > 1 and steps > 2:
        changed |= {"slow-rank": f"{rank}={factor}", "slow-since": 11 + random.randrange(steps - 2)}
    elif fault == "stage" and pp > 1:
        stage = random.randrange(pp)
        changed["stage-costs"] = ",".join(str(factor if number == stage else 1) for number in range(pp))
        return changed, f"stage {stage}"
    elif fault == "link" and pp > 1 and steps * int(str(world["micro-batches"])) >= LEAST_MESSAGES:
        link = f"{random.random()}={round(random.uniform(3, 8), 1)}"
        changed = draw_healthy(int(str(world["seed"])), slow_link=link)
        sender, receiver = str(changed["slow-link"]).partition("=")[0].split(",")
        return changed, f"rank {sender} -> rank {receiver}"
    elif fault == "host stall" and steps > 2:
        changed["host-stall"] = f"{rank},{step}={round(random.uniform(10, 60), 1)}"
        return changed, f"rank {rank} {step}"
    elif fault == "data stall" and steps > 2 and world["names"] != "paddle":
        changed["stall"] = f"{step}={round(random.uniform(10, 60), 1)}"
        return changed, f"data {step}"
    elif fault == "slow loader" and world["names"] != "paddle":
        changed["slow-loader"] = f"{rank}={round(random.uniform(10, 40), 1)}"
        return changed, f"rank {rank} loader"
    elif fault in ("evaluation", "checkpoint") and steps > 2:
        changed[f"{fault}-every"] = 1 + random.randrange(2)
        return changed, "between steps"
    else:
        return world, ""
    return changed, f"rank {rank}"


def score_world(seed: int, fault: str) -> VerdictScore:
    """Simulate a world, and compare its verdict with the truth."""
    world, target = draw_healthy(seed), ""
    if fault != "none":
        world, target = add_fault(world, fault)
    arguments = to_arguments(world)
    facts = {"seed": seed, "fault": fault, "target": target, "arguments": arguments}
    with TemporaryDirectory(prefix="verdict-") as name:
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                simulate_world(name, arguments)
                found = analyse(Path(name), layout=layout_of(world))
        except (NsysPPError, RuntimeError) as error:
            return VerdictScore(**facts, failed=str(error))  # type: ignore[arg-type]
        return _compare(found, Truth(Path(name)), facts)


def _compare(found: Findings, truth: Truth, facts: dict[str, object]) -> VerdictScore:
    training = found.training
    verdict = build_verdict(training)
    findings = [finding for finding in verdict.findings if finding.kind not in ("none", "clocks")]
    processes = truth.table("processes").select("report", "pid", true_rank="rank")
    pids = found.lanes.select("lane", "report", "pid").join(processes, on=["report", "pid"])
    rank_of = dict(pids.select("lane", "true_rank").iter_rows())
    first_step = int(str(training.steps["step"].min()))
    costs, steps = measure_compute(truth), truth.table("steps")
    position = next(
        (at for at, each in enumerate(findings) if _is_fault(each, facts, rank_of, first_step)), None
    )
    table = build_step_table(training)
    slowest = table.drop_nulls("slowest_stage")["slowest_stage"].to_list()
    stage_costs = costs.group_by("stage").agg(pl.col("compute_ns").min())
    largest = stage_costs.sort("compute_ns")["stage"].to_list()[-1:]
    return VerdictScore(
        **facts,  # type: ignore[arg-type]
        lines=verdict.lines,
        kinds=[finding.kind for finding in verdict.findings],
        named=[f"{each.kind} {each.label or each.step}" for each in findings if each.kind in _NAMING],
        false=[
            each.line
            for each in findings
            if not _is_true(each, facts, _list_ranks(each, training.lanes, rank_of), costs, truth, first_step)
        ],
        position=position,
        gain_ns=findings[position].gain_ns if position is not None else 0.0,
        step_ns=mean_step(steps),
        slowest=len(slowest),
        slowest_false=sum(stage not in largest for stage in slowest),
        steps=table.height,
    )


_NAMING = ("straggler", "host", "link", "step", "between")


def mean_step(steps: pl.DataFrame) -> float:
    """Return the time from the first start of a step to the last end, by the number of steps, in ns."""
    return float(
        steps.select((pl.col("end_ns").max() - pl.col("start_ns").min()) / pl.col("step").n_unique()).item()
    )


def _is_fault(finding: Finding, facts: dict[str, object], rank_of: dict[int, int], first_step: int) -> bool:
    """Check whether a finding names the fault; names of steps need not have the simulator's numbers."""
    fault, target = str(facts["fault"]), str(facts["target"])
    rank = None if finding.lane is None else rank_of[finding.lane]
    if not target:
        return False
    if fault.startswith("rank"):
        return finding.kind == "straggler" and f"rank {rank}" == target
    if fault == "stage":
        return finding.kind == "straggler" and finding.label == target
    if fault == "link":
        return finding.kind == "link" and f"rank {rank} -> " in target
    if fault in ("evaluation", "checkpoint"):
        return finding.kind == "between" or (finding.kind == "coverage" and "between them" in finding.text)
    subject, step = target.rsplit(" ", 1)
    if fault == "slow loader":
        return (
            finding.kind in ("idle", "host")
            and re.search(r"wait(s|ed)?\b.* for data", finding.text) is not None
            and (finding.lane is None or f"rank {rank}" == subject)
        )
    of_rank = subject == "data" or f"rank {rank}" == subject
    number = None if finding.step is None else finding.step - first_step + _FIRST_STEP
    is_host = finding.kind == "host" and of_rank and number in (int(step), None)
    return is_host or (finding.kind == "step" and number == int(step))


def _list_ranks(finding: Finding, lanes: pl.DataFrame, rank_of: dict[int, int]) -> list[int]:
    """List the true ranks that a finding names: one, or all of a machine."""
    if finding.subject == "machine":
        lanes = lanes.filter(machine=finding.label)
        return [rank_of[lane] for lane in lanes["lane"]]
    return [] if finding.lane is None else [rank_of[finding.lane]]


def _is_true(
    finding: Finding,
    facts: dict[str, object],
    ranks: list[int],
    costs: pl.DataFrame,
    truth: Truth,
    first_step: int,
) -> bool:
    """Check whether the truth agrees with a finding that names an object."""
    rank = ranks[0] if len(ranks) == 1 else None
    if finding.kind == "link":
        return f"rank {rank} -> " in str(facts["target"])
    if finding.kind == "straggler":
        return _is_slower(finding, ranks, costs) or (str(facts["target"]) == f"rank {rank}")
    if finding.kind in ("host", "step"):
        return _is_longer(finding, rank, truth, first_step)
    return True


def _is_slower(finding: Finding, ranks: list[int], costs: pl.DataFrame) -> bool:
    """Check whether a stage, or each named rank, computes longer than its peers: of a single rank, the others of its stage."""
    if finding.subject == "stage":
        stages = costs.group_by("stage").agg(pl.col("compute_ns").min())
        mine = stages.filter(stage=finding.stage)["compute_ns"]
        others = stages.filter(pl.col("stage") != finding.stage)["compute_ns"]
    else:
        mine = costs.filter(pl.col("rank").is_in(ranks))["compute_ns"]
        is_peer = ~pl.col("rank").is_in(ranks)
        if len(ranks) == 1:
            is_peer &= pl.col("stage") == costs.filter(rank=ranks[0])["stage"].item()
        others = costs.filter(is_peer)["compute_ns"]
    median, least = others.median(), mine.min()
    if not isinstance(median, int | float) or not isinstance(least, int | float):
        return False
    return least > (1 + _LEAST_TRUE_EXCESS) * median


def _is_longer(finding: Finding, rank: int | None, truth: Truth, first_step: int) -> bool:
    """Check whether the time without launches of a rank, or a step, is longer than others by half of the claim."""
    if finding.kind == "step":
        spans = (
            truth.table("steps").group_by("step").agg(span=pl.col("end_ns").max() - pl.col("start_ns").min())
        )
        step = (finding.step or 0) - first_step + _FIRST_STEP
        usual = spans.filter(pl.col("step") != step)["span"].median()
        mine = spans.filter(step=step)["span"].item()
        claimed = (finding.value_ns or 0) - (finding.usual_ns or 0)
        return isinstance(usual, int | float) and mine - usual >= claimed / 2
    duration = (pl.col("end_ns") - pl.col("start_ns")).sum()
    late = truth.table("causes").filter(pl.col("cause").is_in(["host", "data"]))
    late = late if rank is None else late.filter(rank=rank)
    largest = late.group_by("rank", "step").agg(late_ns=duration)["late_ns"].max()
    return (
        isinstance(largest, int | float)
        and largest >= ((finding.value_ns or 0) - (finding.usual_ns or 0)) / 2
    )


def score_seed(seed: int) -> list[VerdictScore]:
    """Score the healthy world of a seed, and the world with its fault."""
    fault = FAULTS[1 + seed % (len(FAULTS) - 1)]
    scores = [score_world(seed, "none")]
    if not scores[0].failed and add_fault(draw_healthy(seed), fault)[1]:
        scores.append(score_world(seed, fault))
    return scores


def run_main(
    name: str,
    score_seed: Callable[[int], list[Any]],
    score: type[Any],
    build_tables: Callable[[Sequence[Any]], str],
    description: str | None,
) -> int:
    """Score the worlds of seeds, print their tables, and write them between the marks of a name."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.worlds.{name}", description=description)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--save", type=Path, help="File of scores, one JSON object per line; its seeds are not run again."
    )
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced.")
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    saved = chosen.save.read_text().splitlines() if chosen.save and chosen.save.exists() else []
    scores = [one for one in (score(**json.loads(line)) for line in saved) if one.seed in seeds]
    done = {one.seed for one in scores}
    for of_seed in map_seeds(score_seed, [seed for seed in seeds if seed not in done], chosen.processes):
        scores += of_seed
        if chosen.save is not None:
            with chosen.save.open("a") as stream:
                stream.writelines(f"{json.dumps(asdict(one))}\n" for one in of_seed)
    print(build_tables(scores))
    if chosen.write is not None:
        write_tables(chosen.write, name, [build_tables(scores)])
    return 0


if __name__ == "__main__":
    sys.exit(run_main("verdicts", score_seed, VerdictScore, build_verdict_tables, __doc__))
