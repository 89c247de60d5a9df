"""Kinds of data that were not recorded, with the options that record them."""

from __future__ import annotations

from html import escape

from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import LackingData, PageSource
from nsys_pp.units import format_count


def _draw(source: PageSource) -> Drawn:
    if not source.lacking:
        return Drawn(absent="All known kinds of data were recorded.")
    rows = "".join(_format_row(source, lacking) for lacking in source.lacking)
    return Drawn(
        html='<div class="scroll"><table><thead><tr><th scope="col">Not recorded</th><th scope="col">Option of <code>nsys profile</code></th>'
        f'<th scope="col">Reports</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _format_row(source: PageSource, lacking: LackingData) -> str:
    count = lacking.report_count
    reports = (
        "all"
        if count == source.report_count
        else f"{count:,} of {format_count(source.report_count, 'report')}"
    )
    return (
        f"<tr><td>{escape(', '.join(lacking.titles))}</td><td><code>{escape(lacking.option)}</code></td>"
        f"<td>{escape(reports)}</td></tr>"
    )


SECTION = Section(
    name="missing",
    title="What was not recorded",
    lead="Data that would explain more, and the option that records it; tracing may also have been on without any event.",
    draw=_draw,
)
