"""Verdict of a comparison: at most five findings on changes from run A to run B beyond noise, by the time of a step.

Steps come first, then members that compute longer or shorter: all ranks, the ranks of a stage, or single ranks; the bubble by
causes, links, and kernels. Findings are tested by `find_changes`, so that a comparison of equal runs names nothing, however
many ranks and kernels it has. If the numbers of micro-batches differ, times of steps, ranks and kernels are per micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import polars as pl

from nsys_pp.frames.aggregates import RunFacts
from nsys_pp.frames.verdict import MOST_LINES, Finding, Verdict
from nsys_pp.tables.compare.changes import find_changes
from nsys_pp.tables.compare.compare import compare_longest_steps, find_span_noise
from nsys_pp.tables.compare.evidence import Comparison
from nsys_pp.tables.compare.members import describe_members
from nsys_pp.tables.compare.parts import describe_bubble, describe_kernels, describe_links
from nsys_pp.tables.compare.samples import LEAST_CHANGE
from nsys_pp.tables.compare.wording import (
    describe_change,
    describe_step_noise,
    is_any_change_noise,
    rate,
    since,
)
from nsys_pp.tables.verdict.evidence import to_float
from nsys_pp.tables.verdict.wording import format_share, format_time
from nsys_pp.units import format_count

Samples = Mapping[str, pl.DataFrame]
_FIRST_STEPS = 2  # of A, with which its later steps are compared


def build_comparison_verdict(facts: tuple[RunFacts, RunFacts], samples: tuple[Samples, Samples]) -> Verdict:
    """Build the verdict of a comparison.

    Args:
        facts: Facts of runs A and B.
        samples: Their samples.

    Returns:
        At most `MOST_LINES` findings. The first one is on steps, the second one on an outstanding step, and the last one
        counts members within noise.
    """
    comparison = Comparison(facts, samples)
    steps = [_describe_steps(comparison)]
    steps += _describe_longest_step(comparison, steps[0])
    members = describe_members(comparison)
    others = [*describe_bubble(comparison), *describe_links(comparison)]
    are_some = any(finding.kind in ("rank", "stage") for finding in members)
    if not are_some or max(run.lane_count for run in facts) == 1:
        others += describe_kernels(comparison)
    findings = sorted([*members, *others], key=partial(_order, comparison))
    shown = findings[: MOST_LINES - 1 - len(steps)]
    last = _describe_rest(comparison, findings, are_all_shown=shown == findings)
    return Verdict(findings=(*steps, *shown, last))


def _order(comparison: Comparison, finding: Finding) -> float:
    """Return the sort key of a finding: its time of a step; of a link one message per micro-batch and direction."""
    if finding.kind != "link":
        return -finding.gain_ns
    messages = 1 if comparison.per else 2 * max(1.0, comparison.facts[0].micro_batch_count)
    return -messages * abs(to_float(finding.value_ns) - to_float(finding.usual_ns))


def _describe_steps(comparison: Comparison) -> Finding:
    """Describe the change of the length of steps."""
    changes = find_changes(*(run["steps"].filter(subject="step") for run in comparison.samples))
    both = changes.drop_nulls(["a", "b"])
    if both.is_empty():
        text = "the length of steps cannot be compared: clocks of ranks can be compared in one run only"
        return Finding(kind="step", text=text, confidence="certain", subject="run")
    row = both.row(0, named=True)
    a, b, change = row["a"], row["b"], row["change_fraction"]
    same = f" instead of {format_time(b)}"
    lengths = f"{format_time(b)} instead of {format_time(a)}"
    if comparison.per:
        raw = [to_float(run["steps"].filter(subject="step")["value"].median()) for run in comparison.raw]
        lengths += f" per micro-batch ({format_time(raw[1])} and {format_time(raw[0])} per step)"
    # values per micro-batch are not those of the table
    noise_of_table = None if comparison.per else find_span_noise(*comparison.samples)
    noise = describe_step_noise(row, noise_of_table)
    if row["is_change"]:
        text = f"steps take {describe_change(change)}{since(row)}: {lengths}{noise}"
    elif row["is_change"] is None:
        text = f"steps take {lengths}; a run has a single step, so it is unknown whether that is noise"
    elif is_any_change_noise(row):
        text = f"steps take {lengths}; there are so few steps that any change may be noise"
    else:
        text = f"steps take the same time within noise: {lengths.removesuffix(same)}{noise}"
    text += _describe_own_change(comparison)
    if comparison.may_be_other_batches:
        text += "; batches of other requests take another time"
    return Finding(
        kind="step",
        text=text,
        confidence=rate(row, comparison),
        subject="run",
        gain_ns=abs(b - a) if row["is_change"] else 0.0,
        gain_fraction=abs(change) if row["is_change"] else 0.0,
        since_step=row["since_step"],
        value_ns=b,
        usual_ns=a,
        excess_fraction=change,
        noise_fraction=row["noise_fraction"],
        sample_count=row["b_step_count"],
    )


def _describe_longest_step(comparison: Comparison, steps: Finding) -> list[Finding]:
    """Describe a step of one run that is longer than any of the other beyond noise, as medians do not show it.

    A change of all steps explains as much of it. Steps of other numbers of micro-batches are not compared.
    """
    longest = compare_longest_steps(*comparison.samples).drop_nulls(["a", "b", "change_fraction"])
    rows = longest.filter(pl.col("verdict").is_in(["slower", "faster"]))
    if comparison.per or rows.is_empty():
        return []
    row = rows.row(0, named=True)
    a, b = row["a"], row["b"]
    common_ns = to_float(steps.value_ns) - to_float(steps.usual_ns) if steps.gain_ns else 0.0
    if abs(b - a - common_ns) <= max(row["noise_fraction"], LEAST_CHANGE) * a:
        return []
    if abs(common_ns) > abs(b - a) or common_ns * (b - a) < 0:
        return []
    run, other = (1, "A") if b > a else (0, "B")
    spans = comparison.samples[run]["steps"].filter(subject="step").sort("value", descending=True)
    step, long_ns, short_ns = spans["step"][0], max(a, b), min(a, b)
    text = (
        f"the longest step of {'AB'[run]}, {step}, is longer than any of {other}: {format_time(long_ns)}"
        f" instead of at most {format_time(short_ns)}, {describe_change(long_ns / short_ns - 1)}"
    )
    return [
        Finding(
            kind="long_step",
            text=text,
            confidence=steps.confidence if steps.confidence == "guess" else "certain",
            subject="step",
            gain_ns=abs(b - a) / len(spans),
            gain_fraction=comparison.share(abs(b - a) / len(spans)),
            step=step,
            value_ns=b,
            usual_ns=a,
            excess_fraction=row["change_fraction"],
            noise_fraction=row["noise_fraction"],
            sample_count=row["b_step_count"],
        )
    ]


def _describe_own_change(comparison: Comparison) -> str:
    """Describe a change of the length of steps inside A, which makes its median doubtful; "" without one."""
    steps = comparison.samples[0]["steps"].filter(subject="step").sort("step")
    own = find_changes(steps.head(_FIRST_STEPS), steps).filter(
        pl.col("is_change"), pl.col("since_step").is_not_null()
    )
    if own.is_empty() or len(steps) < 2 * _FIRST_STEPS:
        return ""
    row = own.row(0, named=True)
    return f"; in A itself they take {describe_change(row['change_fraction'])}{since(row)}"


def _describe_rest(comparison: Comparison, findings: list[Finding], *, are_all_shown: bool) -> Finding:
    """Count the ranks, links and stages within noise, and others."""
    if min(len(facts.steps) for facts in comparison.facts) < 2:
        text = "a run has a single step, so it is unknown which changes of ranks and links are noise"
        return Finding(kind="same", text=text, confidence="certain", subject="run")
    parts = []
    for name, noun in (("ranks", "rank"), ("links", "link")):
        changes = comparison.changes(name)
        same = changes.filter(pl.col("is_change") == False)  # noqa: E712  # nulls are unknown
        unmatched = changes.filter(pl.col("a").is_null() | pl.col("b").is_null())
        unknown = len(changes) - len(same) - len(unmatched) - int(changes["is_change"].sum())
        if len(same):
            limit = max(to_float(same["noise_fraction"].median()), to_float(same["least_fraction"].median()))
            shown = format_count(len(same), noun)
            total = f"all {shown}" if len(same) == len(changes) and len(same) > 1 else shown
            parts.append(f"{total} within noise (up to {format_share(limit)})")
        if len(unmatched):
            parts.append(f"{format_count(len(unmatched), noun)} in one run only")
        if unknown:
            parts.append(f"noise of {format_count(unknown, noun)} unknown")
    text = ", ".join(parts) or "no other rank or link could be compared"
    lead = "no other change beyond noise" if are_all_shown else "more changes in the tables"
    if not findings:
        lead = "no change of ranks, bubble, links or kernels beyond noise"
    return Finding(kind="same", text=f"{lead}: {text}", confidence="certain", subject="run")
