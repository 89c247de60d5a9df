"""Tables as a fragment of HTML, for notebooks and pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nsys_pp.frames.table import FilledTable
from nsys_pp.write.tables.names import clean
from nsys_pp.write.tables.table_text import ShownTable, arrange_table

_NUMBER = ' style="text-align:right;font-variant-numeric:tabular-nums"'
_TEXT = ' style="text-align:left"'


def format_html(tables: Sequence[FilledTable], *, limit: int = 0) -> str:
    """Format tables as a fragment of HTML; every text of a report is escaped.

    Args:
        tables: Tables with their rows.
        limit: Most rows of each group; 0: all.
    """
    return "\n".join(_format_table(filled, arrange_table(filled, limit=limit)) for filled in tables)


def _format_table(filled: FilledTable, table: ShownTable) -> str:
    lines = [f"<h4>{escape(clean(filled.table.title))}</h4>"] if filled.table.title else []
    if table.columns:
        headings = "".join(
            f'<th scope="col"{_align(column.is_number)}>{escape(column.heading)}</th>'
            for column in table.columns
        )
        rows = [
            _format_row(kind, cells, [column.is_number for column in table.columns])
            for kind, *cells in zip(table.kinds, *(column.texts for column in table.columns), strict=True)
        ]
        lines.append(f"<table><thead><tr>{headings}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    lines += [f"<p><small>{escape(text)}</small></p>" for text in (*table.notes, table.caption) if text]
    return "\n".join(lines)


def _format_row(kind: str, cells: Sequence[str], is_number: Sequence[bool]) -> str:
    """Format a row; blanks before the last cell are its depth."""
    indent = len(cells[-1]) - len(cells[-1].lstrip(" "))
    texts = [escape(cell.strip(" ")) for cell in cells]
    texts[-1] = "&nbsp;" * indent + texts[-1]
    if kind == "total":
        texts = [f"<b>{text}</b>" if text else text for text in texts]
    filled = zip(texts, is_number, strict=True)
    return "<tr>" + "".join(f"<td{_align(number)}>{text}</td>" for text, number in filled) + "</tr>"


def _align(is_number: bool) -> str:
    return _NUMBER if is_number else _TEXT
