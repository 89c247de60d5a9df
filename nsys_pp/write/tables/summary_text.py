"""Tables of a summary on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from nsys_pp.write.tables.frames import clean, shorten
from nsys_pp.write.tables.summary_columns import TextColumn, show_columns
from nsys_pp.write.tables.summary_rows import Shape, ShownRows, arrange_rows

NOTHING = "nothing of this kind happened in what was recorded"
_GAP = 2  # cells between columns
_LEAST_NAME, _FAIR_NAME = 16, 40  # cells that names get at the expense of other columns, if they need them
_MOST_TEXT = 28  # cells of a text before the name
_ALL, _LARGE, _MIDDLE = 99.9, 25.0, 10.0  # shares in percent; those between are worth a look


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table to be shown.

    Attributes:
        title: Stands above it.
        frame: All rows, sorted, with units in the names of columns; the last column is the name. What matters
            least is on its left.
        shape: What its rows have to do with each other.
        says: How it was made.
        absent: What is said instead of it; None: it is there.
    """

    title: str
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    shape: Shape = field(default_factory=Shape)
    says: str = ""
    absent: str | None = None


def print_summary(tables: Sequence[TextTable], *, top: int, unit: str | None, console: Console) -> None:
    """Print tables, each under its title and above how it was made, no wider than the terminal.

    Numbers stand to the right, in a unit that the heading tells. Names are shortened in the middle to what the
    other columns leave; where that is too little, headings take two lines, and then the rightmost of the others
    are left out, and named. In a file or a pipe every table is whole; only what is said below it is wrapped.

    Args:
        tables: What to print.
        top: Most rows of each group, and a third as many parts of each; all if 0. Totals are of all rows.
        unit: Of all times: "s", "ms", "us" or "ns"; chosen for columns of a kind together if None.
        console: Where to.
    """
    for number, table in enumerate(tables):
        if number:
            console.print()
        _print_line(table.title, "bold cyan", console)
        if table.absent is not None or table.frame.is_empty():
            _print_line(table.absent or NOTHING, "dim", console)
            continue
        rows, columns = arrange_table(table, top=top, unit=unit)
        left_out = _print_rows(rows, columns, table.shape.groups, console)
        console.print(Text(clean(table.says), style="dim"))
        if left_out:
            _print_line(f"a wider terminal also shows: {', '.join(left_out)}", "dim italic", console)


def arrange_table(table: TextTable, *, top: int, unit: str | None) -> tuple[ShownRows, list[TextColumn]]:
    """Make the texts of what is shown; columns of which nothing is known are left out."""
    frame = table.frame
    groups = table.shape.groups
    known = [name for name in frame.columns[:-1] if name in groups or frame[name].null_count() < len(frame)]
    shape = replace(table.shape, totals=tuple(name for name in table.shape.totals if name in known))
    rows = arrange_rows(frame.select(*known, frame.columns[-1]), shape, top=top)
    return rows, show_columns(rows.frame, unit=unit, is_blank=[kind != "row" for kind in rows.kinds])


class _Layout:
    """How wide each column is, and what its heading is."""

    def __init__(self, columns: list[TextColumn], lines: int, most: int | None) -> None:
        self.columns = columns
        self.headings = [_split_heading(column, lines) for column in columns]
        self.widths = []
        for column, heading in zip(columns, self.headings, strict=True):
            width = max(map(cell_len, (*heading, *column.texts)))
            if most is not None and not column.is_number and column is not columns[-1]:
                width = min(width, max(_MOST_TEXT, *map(cell_len, heading)), max(most // 4, 4))
            self.widths.append(width)

    @property
    def used(self) -> int:
        """Cells that all but the name take."""
        return sum(self.widths[:-1]) + _GAP * (len(self.widths) - 1)


def _lay_out(columns: list[TextColumn], groups: tuple[str, ...], width: int | None) -> _Layout:
    """Fit columns into a width: in one line of headings, in two, or with fewer columns."""
    layout = _Layout(columns, 1, width)
    if width is None:
        return layout
    name = layout.widths[-1]
    least = min(name, max(_LEAST_NAME, min(_FAIR_NAME, 2 * width // 5)))
    if layout.used + least > width:
        columns = list(columns)
        layout = _Layout(columns, 2, width)
        while layout.used + least > width and len(columns) > len(groups) + 1:
            least_rank = min(column.rank for column in columns[len(groups) : -1])
            columns.remove(next(column for column in columns[-2::-1] if column.rank == least_rank))
            layout = _Layout(columns, 2, width)
    layout.widths[-1] = max(1, min(layout.widths[-1], width - layout.used))
    return layout


def _split_heading(column: TextColumn, lines: int) -> list[str]:
    """Split a heading into lines, the last of which is never empty."""
    if lines == 1:
        return [column.heading]
    if column.unit:
        return [column.label, f"({column.unit})"]
    words = column.label.split(" ")
    return [" ".join(words[:-1]), words[-1]]


def _print_rows(
    rows: ShownRows, columns: list[TextColumn], groups: tuple[str, ...], console: Console
) -> list[str]:
    """Print headings and rows; return the headings of columns that have no room."""
    layout = _lay_out(columns, groups, console.width if console.is_terminal else None)
    most = console.width if console.is_terminal else None
    for line in range(len(layout.headings[0])):
        cells = [heading[line] for heading in layout.headings]
        console.print(_join(cells, layout, ["bold"] * len(cells), most), soft_wrap=True)
    texts = [column.texts for column in layout.columns]
    before, of_group = -1, [""] * len(rows.once)
    for kind, group, *cells in zip(rows.kinds, rows.groups, *texts, strict=True):
        if group == before:
            cells[: len(of_group)] = [""] * len(of_group)
        else:
            cells[: len(of_group)], of_group = _leave_out_same(cells, of_group), cells[: len(of_group)]
            if before >= 0:
                console.print(Text("─" * (layout.used + layout.widths[-1]), style="dim"), soft_wrap=True)
        before = group
        console.print(_join(cells, layout, _styles(cells, layout, kind), most), soft_wrap=True)
    return [column.heading for column in columns if column not in layout.columns]


def _leave_out_same(cells: list[str], before: list[str]) -> list[str]:
    """Leave out values of a group that the group before has, too, up to the first that differs."""
    differs = next((place for place, value in enumerate(before) if cells[place] != value), len(before))
    return [""] * differs + cells[differs : len(before)]


def _join(cells: list[str], layout: _Layout, styles: list[str], most: int | None) -> Text:
    """Put the cells of a line next to each other, shortened to their widths."""
    line = Text()
    for column, cell, width, style in zip(layout.columns, cells, layout.widths, styles, strict=True):
        is_name = column is layout.columns[-1]
        if cell_len(cell) > width:
            cell = _shorten_name(cell, width) if is_name else shorten(cell, width)
        if not column.is_number:
            line.append(cell if is_name else set_cell_size(cell, width), style=style)
        else:
            line.append(" " * (width - cell_len(cell)) + cell, style=style)
        if not is_name:
            line.append(" " * _GAP)
    line.rstrip()
    if most is not None:
        line.truncate(most)
    return line


def _styles(cells: list[str], layout: _Layout, kind: str) -> list[str]:
    """Choose the style of each cell of a row: shares that are worth a look are the only colour."""
    if kind != "row":
        return [{"total": "bold", "rest": "dim"}[kind]] * len(cells)
    return [
        _style_share(cell) if column.unit == "%" else ""
        for column, cell in zip(layout.columns, cells, strict=True)
    ]


def _style_share(cell: str) -> str:
    try:
        share = float(cell.replace(",", ""))
    except ValueError:
        return ""
    if share > _ALL:
        return ""
    return "bold yellow" if share >= _LARGE else "yellow" if share >= _MIDDLE else ""


def _shorten_name(text: str, width: int) -> str:
    """Shorten a name, first by what tells least: parameters of kernels, and that they return nothing.

    Its indentation takes a third of the width at most.
    """
    name = text.lstrip(" ")
    indent = min(len(text) - len(name), width // 3)
    start = _find_parameters(name)
    if start > 0:
        name = f"{name[:start].removeprefix('void ')}(…)"
    return " " * indent + shorten(name, width - indent)


def _find_parameters(name: str) -> int:
    """Find where the parameters begin that a name ends with; -1 if it ends otherwise.

    >>> _find_parameters("void f<(int)2>(char (*)[4], int)"), _find_parameters("Memcpy HtoD")
    (14, -1)
    """
    if not name.endswith(")"):
        return -1
    open_count = 0
    for place in range(len(name) - 1, -1, -1):
        open_count += (name[place] == ")") - (name[place] == "(")
        if open_count == 0:
            return place
    return -1


def _print_line(text: str, style: str, console: Console) -> None:
    console.print(Text(clean(text), style=style), soft_wrap=not console.is_terminal)
