"""What pages share: sections, bars, findings, tables, and the file around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, BinaryIO

import polars as pl
from msgspec import Struct, field

from nsys_pp.frames.table import FilledTable
from nsys_pp.frames.verdict import Finding
from nsys_pp.output.chart.page import embed_json, fill_template, read_page_file, wrap_scripts
from nsys_pp.output.colors import color_of
from nsys_pp.output.tables.formats import format_html_table
from nsys_pp.output.tables.text import clean
from nsys_pp.units import format_count, format_duration

# Most rows of a table; data formats of `nsys-pp pipeline` and `summary` have all.
MOST_ROWS = 200
# Most bars of ranks, stages, links or clocks.
MANY = 24
# Least length of a scale of changes, so that small ones do not fill the width.
LEAST_SCALE = 0.1


class Drawn(Struct, frozen=True, kw_only=True):
    """Contents of a section above its tables.

    Attributes:
        html: Fragment of HTML, with escaped texts.
        data: Data for the page's scripts, for JSON.
        absent: Reason why there is nothing to show, and the option that records it; "": there is something.
    """

    html: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    absent: str = ""


class Section(Struct, frozen=True, kw_only=True):
    """A section of a page.

    Attributes:
        name: Name in addresses, and of its data.
        title: Heading.
        lead: Sentence below the heading: the question that it answers, and how to read it.
        kinds: Kinds of findings whose evidence it shows.
        tables: Names of tables, folded below the plots.
        sums: Names of tables of the summary, likewise.
        draw: Builds the plots from the source of the page; for the verdict, also from the other sections.
    """

    name: str
    title: str
    lead: str
    draw: Callable[..., Drawn]
    kinds: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


class Piece(Struct, frozen=True, kw_only=True):
    """A piece of a bar.

    Attributes:
        key: Key of its color (`nsys_pp.output.colors`); "" is muted.
        value: Its length; negative ones extend to the left of zero.
        text: Its meaning and value, shown under the mouse and read aloud.
    """

    key: str
    value: float
    text: str


class Bar(Struct, frozen=True, kw_only=True):
    """A row: its label, pieces from zero on, and a text at its end; `row` is its name in addresses."""

    label: str
    pieces: tuple[Piece, ...]
    text: str = ""
    is_marked: bool = False
    row: str = ""


def write_page(
    output: BinaryIO,
    sections: Sequence[Section],
    source: Any,
    tables: Mapping[str, Sequence[FilledTable]],
    *,
    title: str,
    facts: Sequence[str],
    foot: str,
    absent: str = "",
    is_pair: bool = False,
    scripts: Sequence[str] = (),
) -> dict[str, str]:
    """Write a page.

    Args:
        output: A binary stream.
        sections: The sections, in order; the first one, the verdict, is drawn from the others, too.
        source: What sections are drawn from.
        tables: Tables below the contents of each section.
        title: Heading of the page.
        facts: Short phrases below it.
        foot: Sentence at the end.
        absent: Reason why a section has neither contents nor rows. Default: that of its first table.
        is_pair: The page shows two runs.
        scripts: Names of scripts; without any, the page runs none.

    Returns:
        The reason why a section is empty, by the name of the section; "" for others.
    """
    verdict, *others = sections
    drawn = {section.name: section.draw(source) for section in others}
    drawn[verdict.name] = verdict.draw(source, drawn)
    reasons = {name: _explain(drawn[name], of_section, absent) for name, of_section in tables.items()}
    parts = {
        "policy": "script-src 'unsafe-inline'; img-src data: blob:; " if scripts else "",
        "title": escape(clean(title)),
        "style": read_page_file("page.css", "pages")
        + (read_page_file("comparison.css", "pages") if is_pair else ""),
        "run": "run pair" if is_pair else "run",
        "facts": format_list(facts),
        "contents": "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections),
        "sections": "".join(
            _format_section(section, drawn[section.name], tables[section.name], reasons[section.name])
            for section in sections
        ),
        "foot": format_text(foot),
        "noscript": "",
        "scripts": "",
    }
    if scripts:
        data = embed_json({name: contents.data for name, contents in drawn.items() if contents.data})
        script = wrap_scripts(
            [read_page_file("columns.js"), *(read_page_file(f"{name}.js", "pages") for name in scripts)]
        )
        absent = '<p class="absent">Heat map and charts need JavaScript; bars and tables do not.</p>'
        parts["noscript"] = f"<noscript>{absent}</noscript>\n"
        parts["scripts"] = (
            '<div id="tip" role="tooltip" hidden></div>\n'
            f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
        )
    output.write(fill_template(read_page_file("page.html", "pages"), parts).encode("utf-8", "replace"))
    return {
        name: "" if any(len(table.frame) for table in tables[name]) else reason
        for name, reason in reasons.items()
    }


def draw_rows(
    frame: pl.DataFrame,
    build: Callable[[dict[str, Any]], Bar],
    *,
    caption: str,
    most: int,
    order: str = "first",
    **options: Any,
) -> str:
    """Draw the first rows of a table as bars.

    Args:
        frame: The rows, in order.
        build: Builds the bar of a row.
        caption: Sentence above the bars; `{of}` stands for how many of the rows are drawn.
        most: Most rows.
        order: What the first rows are: "first", "largest", "slowest".
        options: Of `draw_bars`.
    """
    return draw_bars(
        [build(row) for row in frame.head(most).iter_rows(named=True)],
        caption=caption.format(of=f", the {most} {order} of {len(frame):,}" if len(frame) > most else ""),
        **options,
    )


def fold_rows(frame: pl.DataFrame, build: Callable[[dict[str, Any]], Bar]) -> str:
    """Fold the rows of a table without a difference below a line that counts them; "" without any."""
    if frame.is_empty():
        return ""
    bars = draw_rows(frame, build, caption="", most=MANY)
    summary = f"{format_count(len(frame), 'row')} without a difference"
    return f'<details class="equal"><summary>{summary}</summary>{bars}</details>'


def draw_bars(
    bars: Sequence[Bar], *, caption: str, legend: Mapping[str, str] | None = None, least: float = 0.0
) -> str:
    """Draw bars on one scale, in percent of the width, so that texts keep their size on a narrow screen.

    Args:
        bars: The bars, from top to bottom.
        caption: Sentence above them.
        legend: Text of each key of a color, in order.
        least: Least length of the scale, so that small values do not fill the width.

    Returns:
        A fragment of HTML; "" without bars.
    """
    if not bars:
        return ""
    lows = [sum(min(piece.value, 0) for piece in bar.pieces) for bar in bars]
    highs = [sum(max(piece.value, 0) for piece in bar.pieces) for bar in bars]
    low, high = min(0.0, *lows), max(least, *highs)
    scale = 100 / (high - low) if high > low else 0.0
    rows = "".join(_draw_bar(bar, -low * scale, scale) for bar in bars)
    entries = "".join(
        '<span><svg width="12" height="12" aria-hidden="true">'
        f'<rect width="12" height="12" rx="2" fill="{color_of(key)}"/></svg>{escape(text)}</span>'
        for key, text in (legend or {}).items()
    )
    shown = f'<div class="legend">{entries}</div>' if entries else ""
    head = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="bars">{head}{shown}{rows}</figure>'


def build_step_bar(label: str, parts: Mapping[str, float], text: str, *, row: str = "") -> Bar:
    """Build the bar of a step from the time of each part: compute, pause, and causes of the bubble."""
    pieces = [
        Piece(key=color_part(part), value=value, text=f"{name_part(part)} {format_duration(round(value))}")
        for part, value in parts.items()
        if value
    ]
    return Bar(label=label, pieces=tuple(pieces), text=text, row=row)


def color_part(part: str) -> str:
    """Return the key of the color of a part of a step; a pause of the compute is drawn as compute."""
    return "compute" if part == "pause" else part


def name_part(part: str) -> str:
    """Return the name of a part of a step."""
    return part.replace("_", " ")


def format_share(share: float, sign: str = "") -> str:
    """Format a share in percent; `sign` is "+" for changes."""
    return f"{share:{sign}.1%}".replace("%", " %")


def format_change(change: float, noise: float | None) -> str:
    """Format a change, and the one that noise explains."""
    shown = format_share(round(change, 3) + 0.0, "+")  # no "-0.0 %"
    return f"{shown} (noise {'unknown' if noise is None else format_share(noise)})"


def format_finding(
    finding: Finding,
    sections: Iterable[Section],
    drawn: Mapping[str, Drawn],
    meanings: Mapping[str, str],
    *,
    objects: Sequence[str] = (),
    cell: str = "",
    gain: str = "",
    place: str = "",
) -> str:
    """Format a finding: its sentence, confidence, size, evidence, and place in a trace.

    Evidence is the row of its object, where a section has one, and else the first row of the section.

    Args:
        finding: The finding.
        sections: Sections that may show its evidence.
        drawn: Contents of the sections.
        meanings: Meaning of each level of confidence.
        objects: Names of rows that show it, the best one first. Default: its label.
        cell: Attributes of the link to the steps, for the cell of their heat map that shows it.
        gain: Word before its size.
        place: Fragment of HTML.
    """
    links = [
        f'<a href="#{_find_row(section, drawn, objects or [finding.label or ""])}"'
        f"{cell * (section.name == 'steps')}>{escape(section.title)}</a>"
        for section in sections
        if finding.kind in section.kinds and not drawn[section.name].absent
    ]
    facts = [f'<span title="{escape(meanings[finding.confidence])}">{finding.confidence}</span>']
    if finding.gain_ns > 0:
        size = format_duration(round(finding.gain_ns))
        if finding.gain_error_ns > 0:
            size += f" ± {format_duration(round(finding.gain_error_ns))}"
        facts.append(f"{gain}{size} of a mean step ({format_share(finding.gain_fraction)})")
    facts += [f"evidence: {', '.join(links)}"] if links else []
    shown = " · ".join(filter(None, [*facts, place]))
    return f'<li><p class="line">{format_text(finding.line)}</p><p class="facts">{shown}</p></li>'


def name_row(*words: object) -> str:
    """Name a row in addresses.

    >>> name_row("stragglers", "rank 2 -> rank 4"), name_row("host", "node1 GPU 0", 12)
    ('stragglers-rank-2-rank-4', 'host-node1-gpu-0-12')
    """
    return "-".join(re.findall(r"\w+", " ".join(map(str, words)).lower()))


def _find_row(section: Section, drawn: Mapping[str, Drawn], objects: Sequence[str]) -> str:
    """Find the row of the first of some objects that a section shows, else its first row, else itself."""
    rows = re.findall(r'<div class="row[^>]* id="([^"]+)"', drawn[section.name].html)
    names = [name_row(section.name, name) for name in [*objects, ""]]
    return next((row for name in names for row in rows if f"{row}-".startswith(f"{name}-")), section.name)


def format_notes(notes: Sequence[str]) -> str:
    """Format notes below a line that unfolds them; "" without any."""
    if not notes:
        return ""
    summary = f"{len(notes)} note{'s' * (len(notes) > 1)} on inferred and doubtful results"
    return f'<details class="notes"><summary>{summary}</summary>{format_list(notes)}</details>'


def format_grid(headings: Sequence[str], rows: Iterable[Sequence[str]], attributes: str = "") -> str:
    """Format a table of fragments of HTML."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table{attributes}><thead><tr>{head}</tr></thead><tbody>{lines}</tbody>'
        "</table></div>"
    )


def format_text(text: str) -> str:
    """Escape a text of a report, without unprintable characters; text between backticks is code."""
    parts = escape(clean(text)).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def format_list(sentences: Sequence[str]) -> str:
    """Format sentences as a list; "" without any."""
    return f"<ul>{''.join(f'<li>{format_text(text)}</li>' for text in sentences)}</ul>" if sentences else ""


def _format_section(section: Section, drawn: Drawn, tables: Sequence[FilledTable], reason: str) -> str:
    body = drawn.html + "".join(map(_format_folded, tables))
    lead = f'<p class="lead">{format_text(section.lead)}</p>' if body else ""
    absent = f'<p class="absent">{format_text(reason)}</p>' if reason else ""
    kind = "" if body else ' class="empty"'
    return (
        f'<section id="{section.name}"{kind} aria-labelledby="heading-{section.name}">'
        f'<h2 id="heading-{section.name}">{escape(section.title)}</h2>{lead}{absent}{body}</section>'
    )


def _format_folded(filled: FilledTable) -> str:
    if filled.frame.is_empty():
        return ""
    return (
        f'<details class="table" data-table="{escape(filled.table.name)}">'
        f"<summary>{escape(clean(filled.table.title))}</summary>"
        f'<div class="scroll">{format_html_table(filled, limit=MOST_ROWS, is_whole=True)}</div></details>'
    )


def _explain(drawn: Drawn, tables: Sequence[FilledTable], absent: str) -> str:
    """Return the reason why there are no plots, or (`absent`, or that of the tables) neither plots nor rows.

    It is "" if there is something to see.
    """
    if drawn.absent or drawn.html or any(len(table.frame) for table in tables):
        return drawn.absent
    reason = absent or next((str(table.why_empty) for table in tables), "no such events were recorded")
    return f"{reason[:1].upper()}{reason[1:]}."


def _draw_bar(bar: Bar, zero: float, scale: float) -> str:
    # `zero`: its origin in percent; `scale`: percent of a unit
    left = right = zero
    shapes = []
    for piece in bar.pieces:
        size, at = abs(piece.value) * scale, right
        if piece.value < 0:
            left -= size
            at = left
        else:
            right += size
        if size:
            shapes.append(
                f'<rect x="{at:.3f}%" width="{size:.3f}%" height="100%" {_fill(piece.key)}>'
                f"<title>{escape(clean(piece.text))}</title></rect>"
            )
    if zero:
        shapes.append(f'<rect class="zero" x="{zero:.3f}%" width="1" height="100%"/>')
    label, spoken = escape(clean(bar.label)), escape(clean("; ".join(piece.text for piece in bar.pieces)))
    mark, name = " marked" * bar.is_marked, f' id="{bar.row}"' if bar.row else ""
    # of a row that a link names, all pieces are shown
    parts = f'<span class="parts">{spoken}</span>' if bar.row and len(bar.pieces) > 1 else ""
    return (
        f'<div class="row{mark}"{name}><span class="label" title="{label}">{label}</span>'
        f'<svg role="img" aria-label="{label}: {spoken}" width="100%" height="18">{"".join(shapes)}</svg>'
        f'<span class="value">{escape(clean(bar.text))}</span>{parts}</div>'
    )


def _fill(key: str) -> str:
    return f'fill="{color_of(key)}"' if key else 'class="muted"'
