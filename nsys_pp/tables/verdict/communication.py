"""Findings on communication that no compute hides: a share of 5 % of the step, as a mean of all ranks.

Transfers are measured. Where members of a collective or peers of a message are not in the reports, or their clocks leave the
order open, waiting for them is included, less the gain of slow ranks and hosts, for which others wait. If ranks
of the run are missing, only lanes with known peers count; if these are less than half of the lanes, all do, and the finding is
not certain. Half of the time counts as gain: overlap hides part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import format_share, format_time

LEAST_SHARE = 0.05
_HIDDEN = 0.5  # share of exposed time that counts as gain
_KINDS = {"collectives": "collective", "messages": "message"}
_MOST_UNKNOWN = 0.2  # share of time that may be waiting, in a measured finding


def find_exposed_communication(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find exposed collectives and messages, as one finding."""
    if not evidence.has_steps or not evidence.step_ns:
        return []
    # the excess of a slow link has its own finding
    slow_ns = sum(finding.gain_ns for finding in earlier if finding.kind == "link")
    lane_steps = _select_informed(evidence)
    known, unknown = {}, {}
    for words, name in _KINDS.items():
        known[words] = to_float(lane_steps[f"{name}_transfer_ns"].mean())
        unknown[words] = to_float(lane_steps[f"{name}_ns"].mean())
    total = sum(known.values()) + sum(unknown.values())
    if evidence.share(total - slow_ns) < LEAST_SHARE:
        return []
    late_ns = sum(finding.gain_ns for finding in earlier if finding.kind in ("straggler", "host"))
    gain_ns = _HIDDEN * max(0.0, total - slow_ns - min(late_ns, sum(unknown.values())))
    parts = [
        f"{words} {format_time(known[words] + unknown[words])}"
        for words in _KINDS
        if evidence.share(known[words] + unknown[words]) >= 0.005
    ]
    is_known = sum(unknown.values()) <= _MOST_UNKNOWN * total
    waits = "" if is_known else ", waits for other ranks included"
    return [
        Finding(
            kind="communication",
            text=f"communication without compute is {format_share(evidence.share(total))} of a step"
            f" ({', '.join(parts)} of {format_time(evidence.step_ns)}{waits})",
            confidence="certain" if is_known or not evidence.missing_ranks else "likely",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=total,
            sample_count=lane_steps.height,
        )
    ]


def _select_informed(evidence: Evidence) -> pl.DataFrame:
    """Select the steps of lanes whose peers are known, where ranks are missing and at least half of the lanes are such lanes."""
    if not evidence.missing_ranks:
        return evidence.lane_steps
    known, unknown = (
        pl.sum_horizontal(pl.col(f"{name}{suffix}_ns").sum() for name in _KINDS.values())
        for suffix in ("_transfer", "")
    )
    lanes = evidence.lane_steps.group_by("lane").agg(is_known=unknown <= _MOST_UNKNOWN * (known + unknown))
    informed = lanes.filter("is_known")
    if 2 * informed.height < lanes.height:
        return evidence.lane_steps
    return evidence.lane_steps.join(informed, on="lane", how="semi")
