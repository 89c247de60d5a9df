"""Formats and output of tables, shared by the commands that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsys_pp.cli.log import log_output
from nsys_pp.cli.options.output import STANDARD_OUTPUT
from nsys_pp.output.tables.format_registry import FORMATS, SUFFIXES, files_in, is_one_file

if TYPE_CHECKING:
    from nsys_pp.frames.table import FilledTable, Table


def settle_format(output: str, format: str | None, names: Sequence[str] | None, *, option: str) -> str:
    """Choose the format of tables; refuse formats that contradict the output.

    Args:
        output: A file, a folder, or "-".
        format: The requested format; None: inferred from the output.
        names: Names of the requested tables; None: the default ones.
        option: The option that selects tables.
    """
    path = Path(output)
    if output == "-":
        format = format or "table"
        if format != "table" and FORMATS[format].text is None:
            raise click.UsageError(f"{format} cannot be printed; choose a file or a folder with `-o`")
    elif is_one_file(path):
        format = format or SUFFIXES[path.suffix]
    elif format is None:
        extensions = ", ".join(SUFFIXES)
        raise click.UsageError(
            f"unknown extension of `{output}`; expected {extensions}, or a folder with a `--format`"
        )
    if format == "table" and output != "-":
        raise click.UsageError("a table is printed; omit `-o`, or choose another `--format`")
    holds_many = format == "table" or FORMATS[format].holds_many
    if not holds_many and (output == "-" or is_one_file(path)) and (names is None or len(names) > 1):
        raise click.UsageError(f"{format} holds one table; choose it with `{option}`, or a folder with `-o`")
    return format


def check_sort(sort: str | None, tables: Mapping[str, Table[...]]) -> None:
    """Refuse a column that no table has."""
    from nsys_pp.frames.table import describe_columns
    from nsys_pp.output.tables.rows import find_sort_column

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
    from nsys_pp.cli.screen import open_screen
    from nsys_pp.output.tables.output import format_tables, write_tables
    from nsys_pp.output.tables.terminal import print_tables

    if output != STANDARD_OUTPUT:
        for path in write_tables(
            tables, output, format=format, limit=limit, sort=sort, unit=unit, force=force
        ):
            log_output(f"Wrote {path}", path)
    elif format == "table":
        with open_screen() as console:
            print_tables(tables, console=console, limit=limit, sort=sort, unit=unit)
    else:
        click.echo(format_tables(tables, format=format, limit=limit, sort=sort, unit=unit), nl=False)


def list_outputs(output: str, format: str, names: Sequence[str]) -> list[Path]:
    """List the files that will be written, if their folder exists."""
    path = Path(output)
    if output == "-":
        return []
    if is_one_file(path):
        return [path]
    return [*files_in(path, names, format).values()] if path.is_dir() else []
