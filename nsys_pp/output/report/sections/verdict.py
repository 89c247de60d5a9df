"""Verdict: the findings, each with links to its evidence and to its time in the trace."""

from __future__ import annotations

from html import escape

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.output.report.fragments import format_list, format_text, format_trace_link
from nsys_pp.output.report.registry import SECTIONS
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource, name_rows
from nsys_pp.units import format_duration

_CONFIDENCE = {
    "certain": "certain: measured, or twice the excess that noise explains, in three steps and twelve samples or more",
    "likely": "likely: beyond noise",
    "guess": "guess: depends on inferred jobs, unknown stages, or an effect that is not recorded",
}


def _draw(source: PageSource) -> Drawn:
    findings = source.verdict.findings
    if not findings:
        return Drawn(absent="No finding: the reports have no GPU operations.")
    items = "".join(f"<li>{_format_finding(source, finding)}</li>" for finding in findings)
    notes = ""
    if source.notes:
        count = len(source.notes)
        notes = (
            f'<details class="notes"><summary>{count} note{"s" * (count > 1)} on inferred and doubtful results</summary>'
            f"{format_list(source.notes)}</details>"
        )
    return Drawn(html=f'<ol class="findings">{items}</ol>{notes}')


def _format_finding(source: PageSource, finding: Finding) -> str:
    """Format a finding: its sentence, confidence, gain, evidence, and place in the trace."""
    links = [
        f'<a href="#{section.name}">{escape(section.title)}</a>'
        for section in SECTIONS.values()
        if finding.kind in section.kinds
    ]
    facts = [f'<span title="{escape(_CONFIDENCE[finding.confidence])}">{finding.confidence}</span>']
    if finding.gain_ns > 0:
        gain = format_duration(round(finding.gain_ns))
        facts.append(f"gain {gain} of a step ({finding.gain_fraction:.1%})".replace("%", " %"))
    if links:
        facts.append(f"evidence: {', '.join(links)}")
    facts += filter(None, [_format_finding_link(source, finding)])
    return f'<p class="line">{format_text(finding.line)}</p><p class="facts">{" · ".join(facts)}</p>'


def _format_finding_link(source: PageSource, finding: Finding) -> str:
    """Format the place of a finding in the trace: its step (or the first one, or the longest one), on its rank."""
    if finding.kind in ("clocks", "missing", "losses", "requests", "none"):
        return ""
    step = finding.step if finding.step is not None else finding.since_step
    if step is None and source.steps:
        step = source.steps[-1].step
    rows = source.rank_steps.filter(pl.col("step") <= step, pl.col("last_step") >= step)
    row = None
    if finding.lane is not None:
        rows = rows.filter(lane=finding.lane)
        row = name_rows(source.training.lanes.filter(lane=finding.lane))[0]
    if rows.is_empty():
        return ""
    start, end = rows.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return format_trace_link(source.trace_links, start, end, text=f"step {step} in the trace", row=row)


SECTION = Section(
    name="verdict",
    title="Verdict",
    lead="Findings by the time of a step that could be gained; nothing within noise is named.",
    draw=_draw,
)
