"""Slow links, ranks and stages, against the slowdowns of the world."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import polars as pl

from tests.worlds.findings import Findings
from tests.worlds.truth import Truth

_LEAST_EXCESS = 0.02  # of true compute or of a slow link: less is not slow


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerScore:
    """Links, ranks and stages that the library calls slow."""

    false: list[str]  # label and excess of those that are not slow
    right: int


def score_stragglers(findings: Findings, truth: Truth, options: Namespace) -> StragglerScore:
    """Compare slow links with the slowdowns, slow ranks and stages with the true compute of their peers."""
    table = findings.result.tables(["stragglers"])["stragglers"].filter("is_slow")
    processes = truth.table("processes").select("report", "pid", true_rank="rank")
    rank_of = dict(
        findings.lanes.join(processes, on=["report", "pid"]).select("lane", "true_rank").iter_rows()
    )
    slow_ranks, slow_stages = _list_slow(truth)
    false, right = [], 0
    for row in table.iter_rows(named=True):
        what, lane, receiver = str(row["what"]), rank_of.get(row["lane"]), rank_of.get(row["receiver"])
        is_true = {
            "rank": lane in slow_ranks,
            "link": [lane, receiver] == _target(options.slow_link),
            "stage": row["stage"] in slow_stages,
        }[what]
        if is_true:
            right += 1
        else:
            false.append(f"{what} {row['label']} +{100 * (row['excess_fraction'] or 0):.0f}%")
    return StragglerScore(false=false, right=right)


def _list_slow(truth: Truth) -> tuple[set[int], set[int]]:
    """List the ranks that compute longer than other ranks of their stage, and stages longer than other stages."""
    duration = pl.col("end_ns") - pl.col("start_ns")
    compute = (
        truth.table("causes")
        .filter(cause="compute")
        .group_by("rank")
        .agg(total=duration.sum())
        .join(truth.table("processes").select("rank", "stage"), on="rank")
    )
    ranks = {
        row["rank"]
        for row in compute.iter_rows(named=True)
        if _exceeds(row["total"], compute.filter(pl.col("rank") != row["rank"], stage=row["stage"])["total"])
    }
    stages = compute.group_by("stage").agg(pl.col("total").min())
    slow = {
        stage
        for stage, total in stages.iter_rows()
        if _exceeds(total, stages.filter(pl.col("stage") != stage)["total"])
    }
    return ranks, slow


def _exceeds(value: int, others: pl.Series) -> bool:
    """Check whether a value exceeds the median of others."""
    median = others.median()
    return isinstance(median, float) and value > (1 + _LEAST_EXCESS) * median


def _target(text: str | None) -> list[int]:
    """Return the ranks of a slow link; empty without one."""
    target, _, factor = (text or "").partition("=")
    if not target or float(factor) < 1 + _LEAST_EXCESS:
        return []
    return [int(word) for word in target.split(",")]
