"""Tables in GitHub's Markdown: all rows of their views, each table below a heading and above its caption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.files import open_output
from nsys_pp.output.tables.format import Content, Format
from nsys_pp.output.tables.names import clean
from nsys_pp.output.tables.table_text import ShownTable, arrange_table

# characters with a meaning in GitHub's Markdown; `_` inside a word has none
_SPECIAL = re.compile(r"[\\`*<>\[\]|~&]|(?<![^\W_])_|_(?![^\W_])")


def format_markdown(content: Content) -> str:
    """Format tables as Markdown; names are escaped."""
    tables = [
        (
            filled,
            arrange_table(filled, limit=content.limit, sort=content.sort, unit=content.unit, is_whole=True),
        )
        for filled in content.tables
    ]
    return "\n".join(
        _format_table(filled, table, tables[number + 1 : number + 2])
        for number, (filled, table) in enumerate(tables)
    )


def write_markdown(content: Content, path: Path) -> None:
    """Write tables as Markdown."""
    with open_output(path) as stream:
        stream.write(format_markdown(content).encode())


def escape_markdown(text: str) -> str:
    r"""Escape the characters that GitHub reads as Markdown.

    >>> print(escape_markdown("a_b|_c_ <d>"))
    a_b\|\_c\_ \<d\>
    """
    return _SPECIAL.sub(r"\\\g<0>", text)


def _format_table(
    filled: FilledTable, table: ShownTable, following: Sequence[tuple[FilledTable, ShownTable]]
) -> str:
    """Format a table; the caption is omitted if a following table has the same."""
    title = f"## {escape_markdown(clean(filled.table.title))}\n\n"
    is_shared = any(follower.caption == table.caption for _, follower in following)
    lines = "".join(f"- {escape_markdown(line)}\n" for line in table.lines)
    if lines:
        return title + lines
    notes = [*table.notes, *([table.caption] if table.caption and not is_shared else [])]
    text = "\n\n".join(notes) + "\n" * bool(notes)
    if not table.columns:
        return title + text
    rows = [
        [escape_markdown(column.heading) for column in table.columns],
        ["---:" if column.is_number else "---" for column in table.columns],
    ]
    for kind, *cells in zip(table.kinds, *(column.texts for column in table.columns), strict=True):
        escaped = [escape_markdown(cell.strip(" ")) for cell in cells]
        indent = len(cells[-1]) - len(cells[-1].lstrip(" "))
        escaped[-1] = "&nbsp;" * indent + escaped[-1]
        rows.append([f"**{cell}**" if cell and kind == "total" else cell for cell in escaped])
    return title + "".join(f"| {' | '.join(line)} |\n" for line in rows) + "\n" * bool(notes) + text


FORMAT = Format(
    name="markdown",
    suffixes=(".md",),
    holds_many=True,
    write=write_markdown,
    text=format_markdown,
    is_data=False,
)
