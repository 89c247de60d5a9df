"""Tables of the verdicts of random worlds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.worlds.verdicts import FAULTS, VerdictScore

_BEGIN, _END = "<!-- verdicts -->", "<!-- end of verdicts -->"
_COSTS = (0.0, 0.02, 0.05, float("inf"))


def build_tables(scores: Sequence[VerdictScore]) -> str:
    """Build the tables, in Markdown."""
    done = [score for score in scores if not score.failed]
    healthy = {score.seed: score for score in done if score.fault == "none"}
    faulty = [score for score in done if score.target and score.seed in healthy]
    return f"{_describe_healthy([*healthy.values()])}\n\n{_describe_faults(faulty, healthy)}"


def write_tables(path: Path, scores: Sequence[VerdictScore]) -> None:
    """Replace the tables between the marks of a Markdown file."""
    text = path.read_text()
    between = re.compile(f"{_BEGIN}.*{_END}", re.DOTALL)
    body = f"{_BEGIN}\n\n{build_tables(scores)}\n\n{_END}"
    path.write_text(between.sub(lambda _: body, text))


def _describe_healthy(scores: Sequence[VerdictScore]) -> str:
    with_name = [score for score in scores if score.named]
    kinds = ("straggler rank", "straggler stage", "host", "link", "step")
    rows = [("any object named", len(with_name), sum(bool(score.false) for score in scores))]
    for kind in kinds:
        named = [score for score in scores if any(text.startswith(kind) for text in score.named)]
        false = sum(bool(score.false) for score in named)
        rows.append((f"{kind} named", len(named), false))
    lines = [
        f"| {len(scores)} healthy worlds | worlds | contradicting the truth |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {_share(count, len(scores))} | {_share(false, len(scores))} |"
            for name, count, false in rows
        ),
    ]
    steps, slowest = sum(score.steps for score in scores), sum(score.slowest for score in scores)
    false_steps = sum(score.slowest_false for score in scores)
    lines.append(
        f"| `slowest_stage` of a step named | {_share(slowest, steps)} | {_share(false_steps, steps)} |"
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
    return f"| {fault} | {words} | {count} | {_share(len(named), count)} | {_share(first, count)} | {ratio} |"


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / max(total, 1):.1f} %)"
