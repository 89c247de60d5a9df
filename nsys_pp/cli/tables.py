"""Tables of a command: the format of its output, and tables on the screen or in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsys_pp.cli.result import escape_screen, log_output
from nsys_pp.output.files import STANDARD_OUTPUT
from nsys_pp.output.tables import FORMATS, SUFFIXES, files_in, is_one_file

if TYPE_CHECKING:
    from rich.console import Console

    from nsys_pp.frames.table import FilledTable, Table


@contextmanager
def open_screen() -> Iterator[Console]:
    """Open a console that prints through click.

    Rich cannot write names in other scripts to an ASCII terminal.
    """
    from nsys_pp.output.tables.terminal import open_console

    console = open_console()
    with console.capture() as screen:
        yield console
    # only line feeds are the screen's own line breaks
    click.echo(escape_screen("\n".join(line.rstrip() for line in screen.get().rstrip("\n").split("\n"))))


def settle_format(
    output: Path, format: str | None, names: Sequence[str] | None = (), *, option: str | None = None
) -> str:
    """Choose the format of tables; refuse formats that contradict the output.

    Args:
        output: A file, a folder, or `STANDARD_OUTPUT`.
        format: The requested format; None: inferred from the output.
        names: Names of the requested tables; None: the default ones.
        option: The option that selects tables; None: the command has one table, and writes no folder.
    """
    is_printed = output == STANDARD_OUTPUT
    format = format or ("table" if is_printed else SUFFIXES.get(output.suffix))
    if format is None:
        way = ", or a folder with a `--format`" if option else ", or choose a `--format`"
        raise click.UsageError(f"unknown extension of `{output}`; expected {', '.join(SUFFIXES)}{way}")
    if format == "table":
        if not is_printed:
            raise click.UsageError("a table is printed; omit `-o`, or choose another `--format`")
        return format
    chosen = FORMATS[format]
    if is_printed and chosen.text is None:
        place = "a file or a folder" if option else "a file"
        raise click.UsageError(f"{format} cannot be printed; choose {place} with `-o`")
    is_single = not chosen.holds_many and (is_printed or is_one_file(output))
    if is_single and (names is None or len(names) > 1):
        raise click.UsageError(f"{format} holds one table; choose it with `{option}`, or a folder with `-o`")
    return format


def check_sort(sort: str | None, tables: Mapping[str, Table[...]]) -> None:
    """Refuse a column that no table has."""
    from nsys_pp.frames.table import describe_columns
    from nsys_pp.output.tables.text import find_sort_column

    columns = dict.fromkeys(column for table in tables.values() for column in describe_columns(table))
    if sort is not None and find_sort_column(columns, sort) is None:
        raise click.BadParameter(
            f"no table has a column {sort!r}; expected one of {', '.join(columns)}", param_hint="'--sort'"
        )


def output_tables(
    tables: Sequence[FilledTable],
    *,
    output: Path,
    format: str,
    limit: int = 0,
    sort: str | None = None,
    unit: str | None = None,
    force: bool = False,
) -> None:
    """Print tables, or write them and report the files.

    Args:
        tables: Tables with their rows.
        output: A file, a folder, or `STANDARD_OUTPUT`.
        format: "table", or the name of a file format.
        limit: Most rows of each group; 0: all.
        sort: Column that sorts the rows, where a table has it.
        unit: Unit of all times.
        force: Replace existing files.
    """
    if output == STANDARD_OUTPUT and format == "table":
        from nsys_pp.output.tables.terminal import print_tables  # with rich, which a file does not need

        with open_screen() as console:
            print_tables(tables, console=console, limit=limit, sort=sort, unit=unit)
        return
    from nsys_pp.output.tables.formats import format_tables, write_tables

    if output == STANDARD_OUTPUT:
        click.echo(format_tables(tables, format=format, limit=limit, sort=sort, unit=unit), nl=False)
        return
    for path in write_tables(tables, output, format=format, limit=limit, sort=sort, unit=unit, force=force):
        log_output(f"Wrote {path}", path)


def check_outputs(
    output: Path,
    format: str,
    names: Sequence[str],
    reports: Sequence[str],
    *,
    force: bool,
    with_parts: bool = True,
) -> None:
    """Check that the files of tables can be written, before any work is done."""
    from nsys_pp.output.files import check_output
    from nsys_pp.run.inputs import list_existing_inputs

    if output == STANDARD_OUTPUT:
        return
    files = [output] if is_one_file(output) else []
    if output.is_dir() and not files:
        files = [*files_in(output, names, format).values()]
    for path in files:
        check_output(path, force=force, inputs=list_existing_inputs(reports, with_parts=with_parts))
