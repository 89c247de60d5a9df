"""Tables of a summary: sorted, cut, and printed or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import click
import polars as pl
from rich.console import Console

import nsys_pp
from nsys_pp.cli.log import log_notes, log_output
from nsys_pp.commands.summarise import SUMMARY_GROUPS, describe_columns
from nsys_pp.errors import MissingDataError
from nsys_pp.write.tables.frames import format_table, format_tables, write_tables
from nsys_pp.write.tables.summary_columns import convert_times
from nsys_pp.write.tables.summary_markdown import format_summary
from nsys_pp.write.tables.summary_markdown import write_summary as write_markdown
from nsys_pp.write.tables.summary_rows import Shape, find_sort_column, first_rows, sort_rows
from nsys_pp.write.tables.summary_text import TextTable, print_summary


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOutput:
    """What of the tables is shown.

    Attributes:
        names: Of the tables, in order.
        by: What they are split by.
        sort: What they are sorted by; None: each has an order.
        top: Most rows of each group; all if 0.
        unit: Of times; chosen if None.
        paddle_compat: What it says below is said of Paddle's way to count.
    """

    names: Sequence[str]
    by: str
    sort: str | None
    top: int
    unit: str | None
    paddle_compat: bool = False


def check_sort(sort: str | None, names: Sequence[str]) -> None:
    """Refuse a column that none of the tables has."""
    columns = dict.fromkeys(
        column for name in names for column in describe_columns(nsys_pp.SUMMARY_TABLES[name])
    )
    if sort is not None and find_sort_column(columns, sort) is None:
        raise click.BadParameter(
            f"no table has a column {sort!r}: there are {', '.join(columns)}", param_hint="'--sort'"
        )


def write_summary(
    found: nsys_pp.SummaryResult, how: SummaryOutput, *, output: Path | None, format: str, force: bool
) -> None:
    """Print tables, or write them and tell where.

    Args:
        found: The tables.
        how: What of them is shown.
        output: A file or a folder; None prints.
        format: "table" and "markdown" are for people, and say what is not there and why.
        force: Replace what is there.

    Raises:
        MissingDataError: There is nothing to write.
    """
    if format in ("table", "markdown"):
        tables = {name: _arrange(name, found, how) for name in how.names}
        if output is not None:
            _tell(write_markdown(tables, output, top=how.top, unit=how.unit, force=force))
        elif format == "markdown":
            click.echo(format_summary([*tables.values()], top=how.top, unit=how.unit), nl=False)
        else:
            _print(list(tables.values()), how)
        return
    frames = {name: _as_data(name, found.tables[name], how) for name in how.names if name in found.tables}
    missing = [f"no table {name}: {why}" for name, why in found.absent.items()]
    if not frames:
        raise MissingDataError(missing[0], "`nsys-pp info` tells what was recorded")
    titles = {name: table.title for name, table in nsys_pp.SUMMARY_TABLES.items()}
    if output is not None:
        _tell(write_tables(frames, output, format=format, titles=titles, force=force))
    elif format == "csv":
        click.echo(format_table(*frames.values(), format=format), nl=False)
    else:
        click.echo(format_tables(frames, format=format, titles=titles), nl=False)
    log_notes(missing)


def _print(tables: list[TextTable], how: SummaryOutput) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as screen:
        print_summary(tables, top=how.top, unit=how.unit, console=console)
    # names can be of any script, and the locale plain ASCII: click can write them, rich cannot
    click.echo("\n".join(line.rstrip() for line in screen.get().splitlines()))


def _tell(paths: list[Path]) -> None:
    for path in paths:
        log_output(f"Wrote {path}", path)


def _arrange(name: str, found: nsys_pp.SummaryResult, how: SummaryOutput) -> TextTable:
    table = nsys_pp.SUMMARY_TABLES[name]
    if name not in found.tables:
        return TextTable(title=table.title, absent=found.absent[name])
    frame = found.tables[name]
    shape = _shape(name, frame, how.by)
    says = (how.paddle_compat and table.says_compat) or table.says
    return TextTable(title=table.title, frame=_sort(frame, shape, how), shape=shape, says=says)


def _as_data(name: str, frame: pl.DataFrame, how: SummaryOutput) -> pl.DataFrame:
    shape = _shape(name, frame, how.by)
    first = first_rows(_sort(frame, shape, how), shape, top=how.top)
    return first if how.unit is None else convert_times(first, how.unit)


def _sort(frame: pl.DataFrame, shape: Shape, how: SummaryOutput) -> pl.DataFrame:
    column = None if how.sort is None else find_sort_column(frame.columns, how.sort)
    return frame if column is None else sort_rows(frame, column, shape)


def _shape(name: str, frame: pl.DataFrame, by: str) -> Shape:
    """Tell how rows of a table belong together: by what it is split by, and the words before its first number."""
    split = [column for column in SUMMARY_GROUPS[by] if column in frame.columns[:-1]]
    columns = frame.columns[len(split) : -1]
    words = takewhile(lambda column: not frame.schema[column].is_numeric(), columns)
    table = nsys_pp.SUMMARY_TABLES[name]
    # where rows may be added up, none is part of another, whatever names begin with
    return Shape(
        groups=(*split, *words),
        totals=table.totals,
        is_nested=not table.totals,
        is_fixed=table.is_fixed,
    )
