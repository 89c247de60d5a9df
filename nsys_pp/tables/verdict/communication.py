"""Findings on communication that no compute hides: a share of 5 % of the step, as a mean of all ranks.

Transfers are measured. Where members of a collective or peers of a message are not in the reports, or their clocks leave the
order open, waiting for them is included, less the gain of slow ranks and hosts, for which others wait. Half of the time counts
as gain: overlap hides part of it.
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
    known, unknown = {}, {}
    for words, name in _KINDS.items():
        known[words] = to_float(evidence.lane_steps[f"{name}_transfer_ns"].mean())
        unknown[words] = to_float(evidence.lane_steps[f"{name}_ns"].mean())
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
            confidence="certain",
            subject="run",
            gain_ns=gain_ns,
            gain_fraction=evidence.share(gain_ns),
            value_ns=total,
            sample_count=len(evidence.lane_steps.select(pl.col("lane", "step"))),
        )
    ]
