"""The page: sections in order, with the style of the report page, in a file without scripts and network access."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files
from typing import BinaryIO

from msgspec import Struct

from nsys_pp.output.chart.page import fill_template
from nsys_pp.output.compare_page.overview import draw_comparability, draw_verdict
from nsys_pp.output.compare_page.plots import draw_bubbles, draw_kernels, draw_links, draw_ranks, draw_stages
from nsys_pp.output.compare_page.source import ComparisonSource
from nsys_pp.output.compare_page.step_plot import draw_steps
from nsys_pp.output.report.fragments import format_folded, format_list, format_text
from nsys_pp.output.report.page import read_style
from nsys_pp.output.tables.text import clean


class _Section(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    lead: str
    draw: Callable[[ComparisonSource], str]
    tables: tuple[str, ...] = ()


_SECTIONS = (
    _Section(
        name="verdict",
        title="Verdict",
        lead="What changed from A to B, by the time of a step; nothing within noise is named.",
        draw=draw_verdict,
    ),
    _Section(
        name="comparability",
        title="How comparable the runs are",
        lead="Facts in which the runs differ, and what each difference means for the comparison.",
        draw=draw_comparability,
    ),
    _Section(
        name="steps",
        title="Steps",
        lead="Length of each complete step; the line is the median.",
        draw=draw_steps,
        tables=("steps",),
    ),
    _Section(
        name="ranks",
        title="Ranks",
        lead="Own compute of a rank, waiting not counted, relative to the same rank of run A. Less than 2 % does not count.",
        draw=draw_ranks,
        tables=("ranks",),
    ),
    _Section(
        name="stages",
        title="Stages and jobs",
        lead="Compute of the jobs of a stage, and of jobs by kind, relative to run A.",
        draw=draw_stages,
        tables=("stages", "kinds"),
    ),
    _Section(
        name="bubbles",
        title="Bubbles",
        lead="Where the time of a step goes on a rank: compute, and the bubble by cause.",
        draw=draw_bubbles,
        tables=("bubbles",),
    ),
    _Section(
        name="links",
        title="Links",
        lead="Median transfer of a message on each link between ranks, relative to the same link of run A. Less than 25 % and the error of the clocks does not count.",
        draw=draw_links,
        tables=("links",),
    ),
    _Section(
        name="kernels",
        title="Kernels",
        lead="Total of each family of kernels on a rank in a step: B less A.",
        draw=draw_kernels,
        tables=("families", "kernels"),
    ),
)


def write_comparison(source: ComparisonSource, output: BinaryIO) -> None:
    """Write the page of a comparison.

    Args:
        source: Results of the comparison.
        output: A binary stream.
    """
    names = [
        f"{letter}: {name} ({len(facts.steps):,} steps, {facts.lane_count:,} ranks)"
        for letter, name, facts in zip("AB", source.names, source.facts, strict=True)
    ]
    parts = {
        "title": escape(clean(source.title)),
        "style": read_style() + _read_file("compare.css"),
        "facts": format_list(names),
        "contents": "".join(
            f'<a href="#{section.name}">{escape(section.title)}</a>' for section in _SECTIONS
        ),
        "sections": "".join(_format_section(section, source) for section in _SECTIONS),
        "foot": format_text(
            f"Written by nsys-pp {source.made_by}; the numbers are those of `nsys-pp compare`. Noise is estimated from the steps of"
            " both runs."
        ),
    }
    output.write(fill_template(_read_file("compare.html"), parts).encode("utf-8", "replace"))


def _format_section(section: _Section, source: ComparisonSource) -> str:
    heading = f'<h2 id="heading-{section.name}">{escape(section.title)}</h2>'
    lead = f'<p class="lead">{format_text(section.lead)}</p>'
    tables = "".join(format_folded(source.tables[name]) for name in section.tables)
    body = section.draw(source)
    if not body and not tables:
        body = '<p class="absent">Neither run has any.</p>'
    return f'<section id="{section.name}" aria-labelledby="heading-{section.name}">{heading}{lead}{body}{tables}</section>'


@cache
def _read_file(name: str) -> str:
    return files("nsys_pp.output.compare_page").joinpath("page", name).read_text(encoding="utf-8")
