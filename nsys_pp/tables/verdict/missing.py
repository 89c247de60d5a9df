"""Ranks of the run that have no GPU in the reports: findings on waits for them are incomplete."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence
from nsys_pp.tables.verdict.wording import join_ranks
from nsys_pp.units import format_count


def describe_missing(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the missing ranks; runs without any, or with lanes of unknown rank, have no such finding."""
    missing = evidence.missing_ranks
    if not missing:
        return []
    present = evidence.training.lanes["rank"].n_unique()
    is_are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    return [
        Finding(
            kind="missing",
            text=f"{present:,} of {format_count(present + len(missing), 'rank')}: {join_ranks(missing)} {is_are} missing,"
            f" and waits for {them} are unknown",
            confidence="certain",
            subject="run",
            sample_count=present,
        )
    ]
