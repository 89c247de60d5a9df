"""Tables as a fragment of HTML, for notebooks and pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.tables.names import clean
from nsys_pp.output.tables.table_text import arrange_table

_STYLES = (' style="text-align:left"', ' style="text-align:right;font-variant-numeric:tabular-nums"')
_CLASSES = ("", ' class="number"')


def format_html(tables: Sequence[FilledTable], *, limit: int = 0) -> str:
    """Format tables as a fragment of HTML; every text of a report is escaped.

    Args:
        tables: Tables with their rows.
        limit: Most rows of each group; 0: all.
    """
    return "\n".join(
        (f"<h4>{escape(clean(filled.table.title))}</h4>\n" if filled.table.title else "")
        + format_table(filled, limit=limit, aligned=_STYLES)
        for filled in tables
    )


def format_table(
    filled: FilledTable, *, limit: int = 0, is_whole: bool = False, aligned: tuple[str, str] = _CLASSES
) -> str:
    """Format a table without its title.

    Args:
        filled: Table with its rows.
        limit: Most rows of each group; 0: all.
        is_whole: Include the rows that the view of the table hides.
        aligned: Attributes of cells with texts, and of cells with numbers; by default for a page with a style for the class
            "number".
    """
    table = arrange_table(filled, limit=limit, is_whole=is_whole)
    lines = []
    if table.columns:
        align = [aligned[column.is_number] for column in table.columns]
        headings = "".join(
            f'<th scope="col"{attributes}>{escape(column.heading)}</th>'
            for column, attributes in zip(table.columns, align, strict=True)
        )
        rows = [
            _format_row(kind, cells, align)
            for kind, *cells in zip(table.kinds, *(column.texts for column in table.columns), strict=True)
        ]
        lines.append(f"<table><thead><tr>{headings}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    if table.lines:
        lines.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in table.lines)}</ul>")
    lines += [f"<p><small>{escape(text)}</small></p>" for text in (*table.notes, table.caption) if text]
    return "\n".join(lines)


def _format_row(kind: str, cells: Sequence[str], align: Sequence[str]) -> str:
    """Format a row; blanks before the last cell are its depth."""
    indent = len(cells[-1]) - len(cells[-1].lstrip(" "))
    texts = [escape(cell.strip(" ")) for cell in cells]
    texts[-1] = "&nbsp;" * indent + texts[-1]
    if kind == "total":
        texts = [f"<b>{text}</b>" if text else text for text in texts]
    filled = zip(texts, align, strict=True)
    return "<tr>" + "".join(f"<td{attributes}>{text}</td>" for text, attributes in filled) + "</tr>"
