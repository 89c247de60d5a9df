"""Fragments of HTML that sections share: links into the trace, tables, lists, and packed data."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from html import escape

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.report.source import TraceLinks
from nsys_pp.output.tables.formats import format_html_table
from nsys_pp.output.tables.text import clean

MOST_ROWS = 200
"""Most rows of a table; data formats of `nsys-pp pipeline` and `summary` have all."""


def format_text(text: str) -> str:
    """Escape a text of a report, without unprintable characters; text between backticks is code."""
    parts = escape(clean(text)).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def format_trace_link(
    trace_links: TraceLinks | None, start_ns: int, end_ns: int, *, text: str, row: str | None = None
) -> str:
    """Format a link into the trace, or the command that opens it; "" without a trace.

    Args:
        trace_links: The trace.
        start_ns: Start of the time to show, since the start of the run.
        end_ns: Its end.
        text: Text of a link, and label of a command.
        row: Argument that expands rows.
    """
    if trace_links is None:
        return ""
    target = trace_links.format(start_ns, end_ns, row)
    if trace_links.is_link:
        return f'<a class="place" href="{escape(target)}" rel="noreferrer">{escape(text)}</a>'
    return (
        f'<span class="place">{escape(text)}: <code>{escape(target)}</code>'
        '<button type="button" class="copy">Copy</button></span>'
    )


def format_folded(filled: FilledTable, *, is_open: bool = False) -> str:
    """Format a table below a line that unfolds it; "" without rows."""
    if filled.frame.is_empty():
        return ""
    title = escape(clean(filled.table.title))
    return (
        f'<details class="table" data-table="{escape(filled.table.name)}"{" open" * is_open}><summary>{title}</summary>'
        f'<div class="scroll">{format_html_table(filled, limit=MOST_ROWS, is_whole=True)}</div></details>'
    )


def format_list(sentences: Sequence[str]) -> str:
    """Format sentences as a list; "" without any."""
    return f"<ul>{''.join(f'<li>{format_text(text)}</li>' for text in sentences)}</ul>" if sentences else ""


def pack_text(text: str) -> str:
    """Deflate a text, in base64, for `unpack` of `page.js`."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode("ascii")
