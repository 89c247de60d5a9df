"""Findings on links that transfer messages slower than the others of their kind (`link_table.py`).

The gain is the share of the receiver's exposed transfers, and of unknown waits for messages, that the excess makes up.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.tables.training.link_table import FEW_MESSAGES, build_link_table, link_noise_ns
from nsys_pp.tables.verdict.evidence import Evidence, to_float
from nsys_pp.tables.verdict.wording import format_excess, format_time

LEAST_GAIN = 0.005
"""Least share of the step: a smaller gain is no finding."""
_MOST = 2  # of one run
_CERTAIN_FACTOR = 2.0


def find_slow_links(evidence: Evidence, earlier: Sequence[Finding]) -> list[Finding]:
    """Find slow links, by descending gain, at most two."""
    if evidence.training.transfers.is_empty():
        return []
    slow = build_link_table(evidence.training).filter("is_slow").with_columns(noise_ns=link_noise_ns())
    findings = [_describe(evidence, row) for row in slow.iter_rows(named=True)]
    findings = [finding for finding in findings if finding.gain_fraction >= LEAST_GAIN]
    return sorted(findings, key=lambda finding: -finding.gain_ns)[:_MOST]


def _describe(evidence: Evidence, row: dict[str, object]) -> Finding:
    excess, usual = to_float(row["excess_fraction"]), to_float(row["usual_transfer_ns"])
    value, count = to_float(row["median_transfer_ns"]), int(to_float(row["timed_count"]))
    noise = to_float(row["noise_ns"]) / usual if usual else 0.0
    bound = to_float(row["bound_ns"])
    gain_ns = _gain(evidence, row, excess=excess, usual_ns=usual)
    is_certain = count >= FEW_MESSAGES and excess * usual >= _CERTAIN_FACTOR * (noise * usual + bound)
    word = "as" if excess >= 1 else "than"
    return Finding(
        kind="link",
        text=f"messages {row['link']} need {format_excess(excess)} {word} on other links of their kind:"
        f" {format_time(value)} instead of {format_time(usual)} (about {format_time(gain_ns)} of a step of"
        f" {format_time(evidence.step_ns)})",
        confidence="certain" if is_certain else "likely",
        subject="link",
        gain_ns=gain_ns,
        gain_fraction=evidence.share(gain_ns),
        label=str(row["link"]),
        lane=int(to_float(row["sender"])),
        stage=None if row["sender_stage"] is None else int(to_float(row["sender_stage"])),
        value_ns=value,
        usual_ns=usual,
        excess_fraction=excess,
        noise_fraction=noise,
        bound_ns=int(bound),
        sample_count=count,
    )


def _gain(evidence: Evidence, row: dict[str, object], *, excess: float, usual_ns: float) -> float:
    """Estimate the gain of a mean step: exposed transfers of the receiver, less if the link has few of them."""
    exposed = evidence.lane_steps.filter(pl.col("lane") == row["receiver"]).select(
        pl.col("message_transfer_ns") + pl.col("message_ns")
    )
    exposed_ns = to_float(exposed.to_series().mean()) * excess / (1 + excess)
    steps = max(evidence.training.steps["step"].n_unique(), 1)
    return min(exposed_ns, excess * usual_ns * to_float(row["message_count"]) / steps)
