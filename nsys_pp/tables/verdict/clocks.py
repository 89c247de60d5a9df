"""Agreement of the clocks of a run."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.frames.clock import describe_groups
from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import LARGE_BOUND, Evidence, to_float
from nsys_pp.tables.verdict.wording import format_time


def describe_clocks(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Describe the agreement of clocks; runs with a single clock have no such finding."""
    lanes = evidence.training.lanes
    if lanes["clock"].n_unique() < 2:
        return []
    if groups := describe_groups(lanes["clock_group"]):
        return [
            Finding(
                kind="clocks",
                text=f"{groups}: waits and transfers between them are unknown",
                confidence="certain",
                subject="clocks",
                sample_count=lanes["clock_group"].n_unique(),
            )
        ]
    unknown = lanes.filter(lanes["bound_ns"].is_null())["clock"].n_unique()
    bounds = lanes["bound_ns"].drop_nulls()
    if bounds.is_empty():
        text = "the error of the clocks is unknown: waits and transfers between machines are unknown"
        return [Finding(kind="clocks", text=text, confidence="certain", subject="clocks")]
    bound_ns = to_float(bounds.max())
    text = f"clocks agree within {format_time(bound_ns)}"
    if unknown:
        text += f", except {unknown:,} of unknown error"
    elif evidence.share(bound_ns) > LARGE_BOUND:
        text += ": waits and transfers between machines are uncertain"
    return [
        Finding(
            kind="clocks",
            text=text,
            confidence="certain",
            subject="clocks",
            bound_ns=int(bound_ns),
            sample_count=lanes["clock"].n_unique(),
        )
    ]


def excludes_comparisons(finding: Finding) -> bool:
    """Return whether clocks exclude statements on several machines: there are several groups of them."""
    return finding.kind == "clocks" and finding.bound_ns is None and finding.sample_count is not None
