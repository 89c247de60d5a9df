"""The page: sections in order, with one style and one script, in a file without network access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import BinaryIO

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.chart.page import embed_json, fill_template, read_page_file, wrap_scripts
from nsys_pp.output.report.fragments import format_folded, format_list, format_text
from nsys_pp.output.report.registry import SECTIONS
from nsys_pp.output.report.section import Drawn, Section
from nsys_pp.output.report.source import PageSource
from nsys_pp.output.tables.text import clean

_SCRIPTS = ("page", "heat_data", "heat", "charts", "main")


def list_tables(sections: Mapping[str, Section] = SECTIONS) -> tuple[list[str], list[str]]:
    """List the tables of the training and of the summary that the sections need, by name, each once."""
    of_training = dict.fromkeys(name for section in sections.values() for name in section.tables)
    of_summary = dict.fromkeys(name for section in sections.values() for name in section.sums)
    return list(of_training), list(of_summary)


def write_report(source: PageSource, output: BinaryIO) -> dict[str, str]:
    """Write the page of a run.

    Args:
        source: Results of the analysis.
        output: A binary stream.

    Returns:
        The reason why a section is empty, by the name of the section; "" for others.
    """
    drawn = {name: section.draw(source) for name, section in SECTIONS.items()}
    bodies = {name: _format_body(section, drawn[name], source) for name, section in SECTIONS.items()}
    parts = {
        "title": escape(clean(source.title)),
        "style": read_style(),
        "facts": format_list(source.facts),
        "contents": "".join(
            f'<a href="#{name}">{escape(section.title)}</a>' for name, section in SECTIONS.items()
        ),
        "sections": "".join(_format_section(section, bodies[name][0]) for name, section in SECTIONS.items()),
        "foot": _format_foot(source),
        "data": embed_json({name: contents.data for name, contents in drawn.items() if contents.data}),
        "script": wrap_scripts(
            [read_page_file("columns.js"), *(_read_file(f"{name}.js") for name in _SCRIPTS)]
        ),
    }
    output.write(fill_template(_read_file("page.html"), parts).encode("utf-8", "replace"))
    return {name: reason for name, (_, reason) in bodies.items()}


def _format_section(section: Section, body: str) -> str:
    heading = f'<h2 id="heading-{section.name}">{escape(section.title)}</h2>'
    lead = f'<p class="lead">{format_text(section.lead)}</p>'
    return f'<section id="{section.name}" aria-labelledby="heading-{section.name}">{heading}{lead}{body}</section>'


def _format_body(section: Section, drawn: Drawn, source: PageSource) -> tuple[str, str]:
    """Format plots and folded tables; without any, the reason.

    Returns:
        The body, and the reason; "" if there is something to see.
    """
    filled = [
        table
        for tables, names in ((source.tables, section.tables), (source.sums, section.sums))
        for name in names
        if (table := tables.get(name)) is not None
    ]
    tables = "".join(format_folded(table) for table in filled)
    reason = drawn.absent or ("" if drawn.html or tables else _explain(filled))
    absent = f'<p class="absent">{format_text(reason)}</p>' if reason else ""
    return f"{absent}{drawn.html}{tables}", reason if not tables else ""


def _explain(tables: Iterable[FilledTable]) -> str:
    """Return the first reason why a table has no rows."""
    reasons = [table.missing or table.table.empty for table in tables]
    reason = next(iter(reasons), "no such events were recorded")
    return f"{reason[:1].upper()}{reason[1:]}."


def _format_foot(source: PageSource) -> str:
    hint = (
        ""
        if source.trace_links
        else " `--trace run.pftrace` adds commands that open the trace of `nsys-pp merge` at each place."
    )
    return format_text(
        f"Written by nsys-pp {source.made_by}; the numbers are those of `nsys-pp pipeline`, `nsys-pp summary` and `nsys-pp align`."
        f"{hint}"
    )


def read_style() -> str:
    """Read the style of the page, which other pages share."""
    return _read_file("page.css")


@cache
def _read_file(name: str) -> str:
    return files("nsys_pp.output.report").joinpath("page", name).read_text(encoding="utf-8")
