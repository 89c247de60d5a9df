"""Findings on the bubble, links and kernels of two runs."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.training import MEANINGS
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.compare.changes import find_changes
from nsys_pp.tables.compare.evidence import Comparison
from nsys_pp.tables.compare.samples import KERNEL_TOTAL
from nsys_pp.tables.compare.wording import describe_change, rate
from nsys_pp.tables.verdict.evidence import to_float
from nsys_pp.tables.verdict.wording import cut_name, format_share, format_time, join_names

LEAST_GAIN = 0.005
"""Least change of a part of the step, as a share of the step, that is a finding."""
LEAST_SHARE = 0.01
"""Least change of the share of the bubble, or of a cause, that is a finding."""
_MOST_CAUSES = 2
_SHORT = {
    "message_wait": "waiting for messages",
    "message_transfer": "transfers of messages",
    "message": "messages",
    "collective_wait": "waiting for collectives",
    "collective_transfer": "transfers of collectives",
    "collective": "collectives",
    "copy": "copies",
    "data": "loading data",
    "host": "late launches",
    "unknown": "unknown",
    "idle": "idle at the end",
}


def describe_bubble(comparison: Comparison) -> list[Finding]:
    """Describe the change of the bubble with the causes that changed most; none within noise."""
    shares = [run["bubbles"].filter(unit="fraction") for run in comparison.samples]
    # shares are moved by 1, so that relative changes are differences of shares, also from 0
    moved = [run.with_columns(pl.col("value") + 1, least=pl.lit(LEAST_SHARE)) for run in shares]
    changes = _find_cause_changes(moved).with_columns(
        difference=pl.col("b") - pl.col("a"), before=pl.col("a") - 1, after=pl.col("b") - 1
    )
    changed = changes.filter(pl.col("is_change"))
    causes = changed.filter(pl.col("subject") != "bubble").sort(pl.col("difference").abs(), descending=True)
    total = changes.filter(subject="bubble")
    if total.is_empty() or (not to_float(total["is_change"].sum()) and causes.is_empty()):
        return []
    row = total.row(0, named=True)
    listed = [
        f"{_SHORT.get(cause, MEANINGS.get(cause, cause))} {difference * 100:+.1f}"
        for cause, difference in causes.head(_MOST_CAUSES).select("subject", "difference").iter_rows()
    ]
    because = f" ({', '.join(listed)} points)" if listed else ""
    before, after = format_share(row["before"]), format_share(row["after"])
    if row["is_change"]:
        word = "grew" if row["difference"] > 0 else "shrank"
        text = f"the bubble {word} from {before} to {after} of a step{because}"
        size = abs(row["difference"])
    else:
        text = f"the bubble is {after} of a step as before, with other causes{because}"
        row = causes.row(0, named=True)
        size = abs(row["difference"])
    return [
        Finding(
            kind="bubble",
            text=text,
            confidence=rate({**row, "change_fraction": row["difference"]}, comparison),
            subject="run",
            gain_ns=size * comparison.step_ns,
            gain_fraction=size,
            excess_fraction=row["difference"],
            noise_fraction=row["noise_fraction"],
            sample_count=row["b_step_count"],
        )
    ]


def _find_cause_changes(shares: list[pl.DataFrame]) -> pl.DataFrame:
    """Find the changes of causes; as one cause, if the clocks of a run distinguish fewer of them.

    `message` is a wait or a transfer, so a change of it may be one of the clocks alone; likewise `collective`.
    """
    changes = find_changes(*shares)
    for whole in ("message", "collective"):
        if not changes.filter(pl.col("is_change"), subject=whole).is_empty():
            parts = [whole, f"{whole}_wait", f"{whole}_transfer"]
            shares = [_add_causes(run, parts, whole) for run in shares]
            changes = find_changes(*shares)
    return changes


def _add_causes(shares: pl.DataFrame, parts: list[str], whole: str) -> pl.DataFrame:
    """Add shares, which are moved by 1, to one cause."""
    is_part = pl.col("subject").is_in(parts)
    added = (
        shares.filter(is_part)
        .group_by("step", maintain_order=True)
        .agg(pl.col("stage", "metric", "unit", "least").first(), value=(pl.col("value") - 1).sum() + 1)
    )
    rest = shares.filter(~is_part)
    return pl.concat([rest, added.with_columns(subject=pl.lit(whole)).select(rest.columns)])


def describe_links(comparison: Comparison) -> list[Finding]:
    """Describe the links whose transfers take longer or shorter: the one that changed most, and their number.

    They have no gain: the bubble has the sum of their transfers.
    """
    changes = comparison.changes("links")
    changed = changes.filter(pl.col("is_change"))
    findings = []
    for sign, word in ((1, "longer"), (-1, "shorter")):
        rows = changed.filter(pl.col("change_fraction") * sign > 0)
        rows = rows.sort((pl.col("b") - pl.col("a")).abs(), descending=True)
        if rows.is_empty():
            continue
        row = rows.row(0, named=True)
        times = f"{format_time(row['b'])} instead of {format_time(row['a'])}"
        change = describe_change(row["change_fraction"])
        total = len(changes.drop_nulls("change_fraction"))
        if len(rows) == 1:
            text = f"messages {row['subject']} need {change}: {times}"
        elif len(rows) == total:
            text = f"messages need {word} on all {total} links, most on {row['subject']}: {times}"
        else:
            text = f"messages need {word} on {len(rows)} of {total} links, most on {row['subject']}: {times} ({change})"
        findings.append(
            Finding(
                kind="link",
                text=text,
                confidence=rate(row, comparison),
                subject="link",
                label=row["subject"],
                stage=row["stage"],
                value_ns=row["b"],
                usual_ns=row["a"],
                excess_fraction=row["change_fraction"],
                noise_fraction=row["noise_fraction"],
                sample_count=row["b_step_count"],
            )
        )
    return findings


def describe_kernels(comparison: Comparison) -> list[Finding]:
    """Describe the kernel whose total changed most, and kernels of one run only; none of less than `LEAST_GAIN` of a step."""
    totals = [run["kernels"].filter(metric=KERNEL_TOTAL) for run in comparison.samples]
    changes = find_changes(*totals)
    sized = changes.with_columns(size=(pl.col("b").fill_null(0) - pl.col("a").fill_null(0)).abs())
    sized = sized.filter(pl.col("size") >= LEAST_GAIN * comparison.step_ns).sort("size", descending=True)
    findings = []
    for row in sized.filter(pl.col("is_change")).head(1).iter_rows(named=True):
        text = (
            f"kernel `{cut_name(row['subject'])}` takes {describe_change(row['change_fraction'])} in sum:"
            f" {format_time(row['b'])} instead of {format_time(row['a'])} per rank, {comparison.per_text}"
        )
        findings.append(_kernel_finding(comparison, text, row["size"], rate(row, comparison)))
    new, gone = (sized.filter(pl.col(side).is_null()) for side in ("a", "b"))
    if len(new) or len(gone):
        parts = [
            f"only {run} runs {join_names([f'`{cut_name(name)}`' for name in rows['subject']])}"
            f" ({format_time(to_float(rows['size'].sum()))} per rank)"
            for run, rows in (("B", new), ("A", gone))
            if len(rows)
        ]
        size = max(to_float(new["size"].sum()), to_float(gone["size"].sum()))
        findings.append(_kernel_finding(comparison, "other kernels: " + ", ".join(parts), size, "certain"))
    return findings


def _kernel_finding(comparison: Comparison, text: str, size: float, confidence: str) -> Finding:
    return Finding(
        kind="kernel",
        text=text,
        confidence=confidence,  # type: ignore[arg-type]  # of `rate`
        subject="run",
        gain_ns=size,
        gain_fraction=comparison.share(size),
    )
