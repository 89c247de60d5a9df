"""Comparisons of random worlds: with a twin of another seed, and with a twin that has a fault.

No rank, stage or link of a healthy twin should be named. Its steps and bubbles may differ: some worlds draw the latencies of their
hosts and clocks by the seed.

`python -m tests.worlds.comparisons --count 100 --seed 21000001` prints the table of docs/compare.md. Faults are those of
`tests.worlds.verdicts` that last, and another number of micro-batches, with which no rank, stage or link should be named.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import nsys_pp
from nsys_pp.errors import NsysPPError
from nsys_pp.frames.verdict import Finding
from tests.worlds.draw import World, layout_of, to_arguments
from tests.worlds.verdicts import add_fault, draw_healthy, run_main
from tests.worlds.world import simulate_world

FAULTS = ("none", "rank", "rank since a step", "stage", "link", "micro-batches")
_MEMBERS = ("rank", "ranks", "stage", "link")
_OTHER_SEED = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonScore:
    """The verdict of a comparison of a healthy world and its twin."""

    seed: int
    fault: str
    target: str
    lines: list[str] = field(default_factory=list)
    is_named: bool = False  # the fault
    false: list[str] = field(
        default_factory=list
    )  # changes of ranks, stages and links that the twin does not have
    failed: str = ""


def draw_twin(seed: int, fault: str) -> tuple[World, World, str]:
    """Draw a healthy world and its twin of another seed; with the faulty object, "" if it has none."""
    world, target = draw_healthy(seed), ""
    twin = dict(world)
    if fault == "micro-batches":
        twin["micro-batches"], target = 2 * int(str(world["micro-batches"])), "micro-batches"
    elif fault != "none":
        twin, target = add_fault(world, fault)
    return world, {**twin, "seed": seed + _OTHER_SEED}, target


def score_comparison(seed: int, fault: str) -> ComparisonScore:
    """Simulate a world and its twin, and check what their comparison names."""
    world, twin, target = draw_twin(seed, fault)
    facts = {"seed": seed, "fault": fault, "target": target}
    with TemporaryDirectory(prefix="comparison-") as name:
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for run, options in (("a", world), ("b", twin)):
                    simulate_world(str(Path(name) / run), to_arguments(options))
                runs = (Path(name) / "a", Path(name) / "b")
                verdict = nsys_pp.compare(*runs, layout=layout_of(world)).verdict
        except (NsysPPError, RuntimeError) as error:
            return ComparisonScore(**facts, failed=str(error))  # type: ignore[arg-type]
    named = [finding for finding in verdict.findings if finding.kind in _MEMBERS]
    right = [finding for finding in named if _is_fault(finding, fault, target)]
    false = [finding.line for finding in named if finding not in right and target != f"stage {finding.stage}"]
    return ComparisonScore(
        **facts,  # type: ignore[arg-type]
        lines=verdict.lines,
        is_named=bool(right),
        false=false,
    )


def _is_fault(finding: Finding, fault: str, target: str) -> bool:
    """Return whether a finding names the fault; the only rank of a stage is named with it."""
    label = str(finding.label)
    if fault == "link":
        return {*label.split(" -> ")} == {*target.split(" -> ")}
    return label == target or finding.text.startswith(f"{target} (stage ")


def build_table(scores: Sequence[ComparisonScore]) -> str:
    """Build the table: comparisons by fault, those that name it, and those with a false change."""
    lines = ["| B differs from A in | comparisons | named | with a false change |", "|---|---|---|---|"]
    for fault in FAULTS:
        of_fault = [score for score in scores if score.fault == fault and not score.failed]
        named = sum(score.is_named for score in of_fault) if fault not in ("none", "micro-batches") else "-"
        title = "the seed alone" if fault == "none" else fault
        false = sum(bool(score.false) for score in of_fault)
        lines.append(f"| {title} | {len(of_fault)} | {named} | {false} |")
    return "\n".join(lines)


def score_seed(seed: int) -> list[ComparisonScore]:
    """Score a world with a healthy twin, and with one of another fault by turns."""
    fault = FAULTS[1 + seed % (len(FAULTS) - 1)]
    scores = [score_comparison(seed, "none")]
    if not scores[0].failed and draw_twin(seed, fault)[2]:
        scores.append(score_comparison(seed, fault))
    return scores


if __name__ == "__main__":
    sys.exit(run_main("comparisons", score_seed, ComparisonScore, build_table, __doc__))
