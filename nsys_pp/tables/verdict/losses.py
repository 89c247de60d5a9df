"""Events that nsys lost: sums, gaps and causes of these reports are incomplete."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence
from nsys_pp.tables.verdict.wording import cut_name, join_names
from nsys_pp.units import format_count


def describe_losses(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the reports with lost events, by nsys; runs without any have no such finding."""
    lanes = evidence.training.lanes
    losses = evidence.training.losses
    reports = sorted({loss.report for loss in losses})
    labels = lanes.filter(pl.col("report").is_in(reports))["label"].to_list()
    if not labels:  # reports without a GPU have no results here
        return []
    texts = list(dict.fromkeys(loss.text.rstrip(".") for loss in losses))
    more = f" and {format_count(len(texts) - 1, 'more message')}" if len(texts) > 1 else ""
    is_all = len(labels) == lanes.height and len(labels) > 1
    its = "its" if len(labels) == 1 else "their"
    return [
        Finding(
            kind="losses",
            text=f"nsys lost events of {'all ranks' if is_all else join_names(labels)} (`{cut_name(texts[0])}`{more}): {its} gaps and"
            " sums may be wrong",
            confidence="certain",
            subject="run",
            label=None if is_all else join_names(labels),
            sample_count=len(reports),
        )
    ]
