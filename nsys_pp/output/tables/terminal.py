"""Tables on a terminal, and in a log: never wider than the terminal, without loss of distinguishing text.

rich wraps, aligns and styles cells. This module adds three things: it drops columns that do not fit, and
lists them below the table; it chooses between headings of one line and of several; and it shortens names
where they differ least (`shorten_symbol`). These depend on the widths of columns, which are therefore
computed here, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct
from rich.cells import cell_len, chop_cells
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from nsys_pp.frames.table import AnyTable
from nsys_pp.output.tables.text import Content, ShownTable, TextColumn, arrange_tables, clean, shorten_name

# Maximum width of a log: lines that an editor, a browser or a pager shows in full.
LOG_WIDTH = 160

_GAP = 2  # cells between columns
_LEAST_TEXT, _LEAST_NAME, _FAIR_NAME = 12, 16, 40  # cells of texts, before other columns are dropped
_MOST_WORD = 20  # cells of a word that is not broken, before other columns are dropped
# Lines after which those of the first table are repeated, and lines of a table beside its rows, about
_SCREEN, _BESIDE_ROWS = 40, 4


def open_console() -> Console:
    """Create the console of stdout, as wide as the terminal.

    Without a terminal, it is as wide as `COLUMNS`, at most `LOG_WIDTH`.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        asked = os.environ.get("COLUMNS", "")
        console.width = min(int(asked) if asked.isdigit() and int(asked) else LOG_WIDTH, LOG_WIDTH)
    return console


def print_tables(content: Content, *, console: Console) -> None:
    """Print tables, each below its title and above its caption, no wider than the console.

    Numbers are aligned to the right, with their unit in the heading. Texts are folded, long names are
    shortened. If a table is too wide, headings are split into several lines; then the columns of the lowest
    priority are dropped, and listed below the table. Tables without rows are listed after the others, with
    the reason. If more than a screen follows the lines of the first table, they are repeated.

    Args:
        content: Tables with their rows. Totals are of all rows, also of those beyond its limit.
        console: Console to print to (`open_console`).
    """
    shown = arrange_tables(content)
    filled = [
        (one.table, table)
        for one, table in zip(content.tables, shown, strict=True)
        if len(one.frame) or len(shown) == 1
    ]
    for number, (definition, table) in enumerate(filled):
        if number:
            console.print()
        left_out = _print_rows(definition, table, console, is_wide=content.is_wide)
        follower = filled[number + 1][1].caption if number + 1 < len(filled) else ""
        lines = list(table.notes)
        if table.hidden_count:
            lines.append("`--limit 0` shows all rows")
        if left_out:
            lines.append(f"a wider output also shows: {', '.join(left_out)}")
        if table.caption != follower:  # consecutive tables with one caption print it once
            lines.append(table.caption)
        for line in filter(None, lines):
            console.print(Text(line, style="dim"))
    empty: dict[str, list[str]] = {}
    for one in content.tables:
        if one.frame.is_empty() and len(shown) > 1:
            empty.setdefault(str(one.why_empty), []).append(one.table.title)
    if empty or content.others:
        console.print()
    for why, titles in empty.items():
        console.print(Text(clean(f"{', '.join(titles)}: {why}"), style="dim"))
    if content.others:
        console.print(Text(f"`--table` also shows: {', '.join(content.others)}", style="dim"))
    if shown[0].lines and sum(len(table.kinds) + _BESIDE_ROWS for _, table in filled[1:]) > _SCREEN:
        console.print()
        _print_rows(*filled[0], console, is_wide=content.is_wide)


def _print_rows(definition: AnyTable, table: ShownTable, console: Console, *, is_wide: bool) -> list[str]:
    """Print the title and rows of a table; return the headings of the columns that do not fit."""
    console.print(Text(clean(definition.title), style="bold cyan"))
    for line in table.lines:
        console.print(Text(line))
    if not table.columns:
        return []
    layout = _choose_layout(table, console.width)
    grid = RichTable(
        box=None, pad_edge=False, padding=(0, _GAP, 0, 0), collapse_padding=True, header_style="bold"
    )
    for column, heading, width in zip(layout.columns, layout.headings, layout.widths, strict=True):
        grid.add_column(
            Text(heading), justify="right" if column.is_number else "left", width=width, overflow="fold"
        )
    before, of_group = -1, [""] * table.group_count
    for row, (kind, group) in enumerate(zip(table.kinds, table.groups, strict=True)):
        cells = [column.texts[row] for column in layout.columns]
        if group == before:
            cells[: len(of_group)] = [""] * len(of_group)
        else:
            if before >= 0:
                grid.add_row(*(Rule(style="dim") for _ in cells))
            own = cells[: len(of_group)]
            # values equal to those of the previous group are omitted, up to the first difference
            differs = next((at for at, value in enumerate(of_group) if own[at] != value), len(own))
            cells[:differs], of_group = [""] * differs, own
        before = group
        grid.add_row(
            *(
                _render(cell, column, width, kind, is_wide=is_wide)
                for cell, column, width in zip(cells, layout.columns, layout.widths, strict=True)
            )
        )
    console.print(grid)
    return [column.heading for column in table.columns if column not in layout.columns]


class _Layout(Struct, frozen=True, kw_only=True):
    """The columns that are shown, their headings, and their widths in cells."""

    columns: tuple[TextColumn, ...]
    headings: tuple[str, ...]
    widths: tuple[int, ...]
    needed: int  # width of the table with texts at their minimum width


def _choose_layout(table: ShownTable, width: int) -> _Layout:
    """Fit columns into a width: with headings of one line, of several, or with fewer columns."""
    columns = list(table.columns)
    layout = _measure(columns, width, is_split=False)
    while layout.needed > width:
        layout = _measure(columns, width, is_split=True)
        droppable = columns[table.group_count : -1]
        if layout.needed <= width or not droppable:
            break
        least = min(column.column.priority for column in droppable)
        columns.remove(next(column for column in reversed(droppable) if column.column.priority == least))
    return layout


def _measure(columns: Sequence[TextColumn], width: int, *, is_split: bool) -> _Layout:
    """Compute the widths of columns; texts share the width left by numbers, the longest ones shrink."""
    headings = [_split_heading(column) if is_split else column.heading for column in columns]
    wanted, least = [], []
    for column, heading in zip(columns, headings, strict=True):
        heading_cells = max(map(cell_len, heading.split("\n")))
        cells = max(heading_cells, *map(cell_len, column.texts))
        fair = (
            max(_LEAST_NAME, min(_FAIR_NAME, 2 * width // 5))
            if column is columns[-1]
            else max(_LEAST_TEXT, heading_cells, _measure_words(column))
        )
        wanted.append(cells)
        least.append(cells if column.is_number else min(cells, fair))
    gaps = _GAP * (len(columns) - 1)
    room = width - gaps
    most = max(wanted)
    while most > 2 and sum(_cap(wanted, least, most)) > room:
        most -= 1
    widths = _cap(wanted, least, most)
    if sum(widths) > room:  # no more columns can be dropped
        widths = [*widths[:-1], max(2, room - sum(widths[:-1]))]
    return _Layout(
        columns=tuple(columns), headings=tuple(headings), widths=tuple(widths), needed=sum(least) + gaps
    )


def _measure_words(column: TextColumn) -> int:
    """Return the width of the longest word that is to stay whole; names of functions are cut anywhere."""
    if column.is_number or column.column.is_symbol or column.column.is_name:
        return 0
    words = (cell_len(word) for text in column.texts for word in text.split())
    return max((cells for cells in words if cells <= _MOST_WORD), default=0)


def _cap(wanted: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    return [min(cells, max(most, floor)) for cells, floor in zip(wanted, least, strict=True)]


def _split_heading(column: TextColumn) -> str:
    """Split a heading at words into lines that are no wider than the texts below it, if possible."""
    words = [*column.column.heading.split(" "), *([f"({column.unit})"] if column.unit else [])]
    most = max(map(cell_len, (*words, *column.texts)))
    lines = [words[0]]
    for word in words[1:]:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def _render(cell: str, column: TextColumn, width: int, kind: str, *, is_wide: bool) -> RenderableType:
    """Render a cell; blanks that begin a text are indentation.

    It takes at most a third of the width if the text is folded.
    """
    style = {"total": "bold", "rest": "dim"}.get(kind, "")
    bare = cell.lstrip(" ")
    indent = len(cell) - len(bare)
    indent = indent if cell_len(cell) <= width else min(indent, width // 3)
    if kind == "row" and (column.column.is_symbol or column.column.is_name):
        if not is_wide:
            bare = shorten_name(bare, width - indent, is_symbol=column.column.is_symbol)
        # rich folds at words: a short one like "void" would fill a line of its own
        bare = "\n".join(chop_cells(bare, width - indent))
    text = Text(bare, style=style)
    return Padding(text, (0, 0, 0, indent)) if indent else text
