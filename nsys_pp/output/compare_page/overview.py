"""The first sections: findings, gates and notes; and how comparable the runs are."""

from __future__ import annotations

from html import escape

import polars as pl

from nsys_pp.frames.verdict import Finding
from nsys_pp.output.compare_page.source import ComparisonSource
from nsys_pp.output.report.fragments import format_list, format_text
from nsys_pp.units import format_duration

_CONFIDENCE = {
    "certain": "certain: twice the change that noise explains, in three steps or more; or a statement without a test",
    "likely": "likely: beyond noise",
    "guess": "guess: steps are inferred, or the noise is unknown",
}
_EVIDENCE = {
    "step": ("steps", "Steps"),
    "long_step": ("steps", "Steps"),
    "rank": ("ranks", "Ranks"),
    "ranks": ("ranks", "Ranks"),
    "stage": ("stages", "Stages and jobs"),
    "bubble": ("bubbles", "Bubbles"),
    "link": ("links", "Links"),
    "kernel": ("kernels", "Kernels"),
}


def draw_verdict(source: ComparisonSource) -> str:
    """Draw the findings, the gates, and the notes."""
    items = "".join(f"<li>{_format_finding(finding)}</li>" for finding in source.verdict.findings)
    sentence = source.comparability
    body = f'<ol class="findings">{items}</ol><p>{format_text(f"{sentence[:1].upper()}{sentence[1:]}.")}</p>'
    body += _format_gates(source)
    if source.notes:
        count = len(source.notes)
        summary = f"{count} note{'s' * (count > 1)} on inferred and doubtful results"
        body += f'<details class="notes"><summary>{summary}</summary>{format_list(source.notes)}</details>'
    return body


def draw_comparability(source: ComparisonSource) -> str:
    """Draw the facts that differ as a table, and list the others."""
    table = source.tables["comparability"].frame
    rows = table.filter(pl.col("effect") != "same")
    same = table.filter(pl.col("effect") == "same")["fact"].to_list()
    body = ""
    if len(rows):
        head = "".join(f'<th scope="col">{name}</th>' for name in ("Fact", "A", "B", "Effect", "Meaning"))
        lines = "".join(_format_fact(row) for row in rows.iter_rows(named=True))
        body = f'<div class="scroll"><table class="facts-table"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    if same:
        body += f'<p class="muted">{format_text("The same in both runs: " + ", ".join(same) + ".")}</p>'
    return body


def _format_finding(finding: Finding) -> str:
    """Format a finding: its sentence, confidence, size and evidence."""
    facts = [f'<span title="{escape(_CONFIDENCE[finding.confidence])}">{finding.confidence}</span>']
    if finding.gain_ns > 0:
        size = format_duration(round(finding.gain_ns))
        facts.append(f"{size} of a step ({finding.gain_fraction:.1%})".replace("%", " %"))
    if finding.kind in _EVIDENCE:
        name, title = _EVIDENCE[finding.kind]
        facts.append(f'evidence: <a href="#{name}">{title}</a>')
    return f'<p class="line">{format_text(finding.line)}</p><p class="facts">{" · ".join(facts)}</p>'


def _format_gates(source: ComparisonSource) -> str:
    if not source.gates:
        return ""
    failed = [f'<li><span class="failed">failed</span> {format_text(text)}</li>' for text in source.failures]
    names = [
        gate for gate in source.gates if not any(text.startswith(f"`{gate}`") for text in source.failures)
    ]
    passed = [f'<li><span class="passed">passed</span> {format_text(f"`{gate}`")}</li>' for gate in names]
    return f'<h3>Gates</h3><ul class="gates">{"".join([*failed, *passed])}</ul>'


def _format_fact(row: dict[str, str | None]) -> str:
    cells = [format_text(row[name] or "unknown") for name in ("fact", "a", "b")]
    effect = row["effect"] or ""
    cells = [f"<td>{cell}</td>" for cell in cells]
    meaning = format_text(row["meaning"] or "")
    return f'<tr>{"".join(cells)}<td class="{escape(effect)}">{escape(effect)}</td><td>{meaning}</td></tr>'
