"""Findings on ranks that compute longer or shorter than in run A: all of them, all of a stage, or single ones."""

from __future__ import annotations

from typing import Any

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.compare.evidence import Comparison
from nsys_pp.tables.compare.wording import describe_change, rate, since
from nsys_pp.tables.verdict.evidence import to_float
from nsys_pp.tables.verdict.wording import format_time, join_names

_MOST_ALIKE = 0.5  # part of a shared change by which single ranks may differ from it


def describe_members(comparison: Comparison) -> list[Finding]:
    """Describe the changes of ranks; a change that all ranks, or all ranks of a stage, share is one finding."""
    changes = comparison.changes("ranks").filter(pl.col("a").is_not_null(), pl.col("b").is_not_null())
    changed = changes.filter(pl.col("is_change"))
    findings = []
    for sign in (1, -1):
        rows = changed.filter(pl.col("change_fraction") * sign > 0)
        if rows.is_empty():
            continue
        if len(rows) == len(changes) > 1 and _is_alike(rows):
            findings.append(_describe_group(comparison, rows, f"all {len(rows)} ranks", stage=None))
            rows = _exceptions(rows)
        for (stage,), members in rows.group_by("stage", maintain_order=True):
            of_stage = changes.filter(pl.col("stage").eq_missing(pl.lit(stage, pl.Int64)))
            is_whole = stage is not None and len(members) == len(of_stage) and changes["stage"].n_unique() > 1
            if is_whole and _is_alike(members):
                findings.append(_describe_group(comparison, members, f"stage {stage}", stage=_integer(stage)))
                members = _exceptions(members)
            findings += [_describe_rank(comparison, row) for row in members.iter_rows(named=True)]
    return _fold(comparison, findings)


def _is_alike(rows: pl.DataFrame) -> bool:
    """Return whether most ranks share a change."""
    return len(_exceptions(rows)) <= len(rows) // 4


def _exceptions(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ranks whose change differs from the change of the others."""
    usual = to_float(rows["change_fraction"].median())
    apart = (pl.col("change_fraction") - usual).abs()
    least = pl.max_horizontal(pl.lit(_MOST_ALIKE * abs(usual)), "noise_fraction", "least_fraction")
    return rows.filter(apart > least)


def _describe_group(comparison: Comparison, rows: pl.DataFrame, label: str, *, stage: int | None) -> Finding:
    row = {
        name: rows[name].median()
        for name in ("a", "b", "change_fraction", "noise_fraction", "least_fraction")
    }
    starts = rows["since_step"].unique()
    row["since_step"] = starts[0] if len(starts) == 1 else None
    row["a_step_count"], row["b_step_count"] = rows["a_step_count"].min(), rows["b_step_count"].min()
    row["is_change"] = True
    row["is_among_peers"] = bool(rows["is_among_peers"].all())
    subject = label
    if stage is not None and len(rows) == 1:
        subject = f"{rows['subject'][0]} ({label})"
    elif stage is not None:
        subject = f"{label} ({len(rows)} ranks)"
    verb = "compute" if stage is None else "computes"
    return _describe(
        comparison,
        row,
        subject,
        verb,
        label=label,
        stage=stage,
        kind="stage" if stage is not None else "ranks",
    )


def _describe_rank(comparison: Comparison, row: dict[str, Any]) -> Finding:
    label = row["subject"]
    where = "" if row["stage"] is None else f" (stage {row['stage']})"
    return _describe(
        comparison, row, f"{label}{where}", "computes", label=label, stage=row["stage"], kind="rank"
    )


def _describe(
    comparison: Comparison,
    row: dict[str, Any],
    subject: str,
    verb: str,
    *,
    label: str,
    stage: int | None,
    kind: str,
) -> Finding:
    a, b = to_float(row["a"]), to_float(row["b"])
    gain_ns = a * abs(to_float(row["change_fraction"]))
    peers = " relative to the others" if row["is_among_peers"] else ""
    text = (
        f"{subject} {verb} {describe_change(to_float(row['change_fraction']))}{peers}{since(row)}: {format_time(b)} instead of"
        f" {format_time(a)} {comparison.per_text}"
    )
    return Finding(
        kind=kind,
        text=text,
        confidence=rate(row, comparison),
        subject="stage" if kind == "stage" else "rank" if kind == "rank" else "run",
        gain_ns=gain_ns,
        gain_fraction=comparison.share(gain_ns),
        label=label,
        stage=stage,
        since_step=row["since_step"],
        value_ns=b,
        usual_ns=a,
        excess_fraction=row["change_fraction"],
        noise_fraction=row["noise_fraction"],
        sample_count=row["b_step_count"],
    )


_MOST_SINGLE = 2


def _fold(comparison: Comparison, findings: list[Finding]) -> list[Finding]:
    """Fold many single ranks into one finding."""
    single = [finding for finding in findings if finding.kind == "rank"]
    if len(single) <= _MOST_SINGLE:
        return findings
    kept = [finding for finding in findings if finding.kind != "rank"]
    for sign, word in ((1, "longer"), (-1, "shorter")):
        group = [finding for finding in single if to_float(finding.excess_fraction) * sign > 0]
        group.sort(key=lambda finding: -finding.gain_ns)
        if len(group) <= 1:
            kept += group
            continue
        most = max(abs(to_float(finding.excess_fraction)) for finding in group)
        names = join_names([str(finding.label) for finding in group])
        text = f"{names} compute {word}, up to {describe_change(sign * most)}"
        worst = group[0]
        kept.append(
            Finding(
                kind="rank",
                text=text,
                confidence=worst.confidence,
                subject="run",
                gain_ns=worst.gain_ns,
                gain_fraction=worst.gain_fraction,
                excess_fraction=sign * most,
                sample_count=worst.sample_count,
            )
        )
    return kept


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None
