"""Tables of a command: the format of its output, and tables on the screen or in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from nsys_pp.cli.result import begin_document, escape_screen, escape_text, log_notes, log_output
from nsys_pp.output.files import STANDARD_OUTPUT, check_output
from nsys_pp.output.tables import FORMATS, SUFFIXES, files_in, is_one_file
from nsys_pp.units import format_count

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from nsys_pp.frames.table import FilledTable, Table


# Rows of a table that is alone on the screen, and of each of several
_ROWS, _FEW_ROWS = 40, 10


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


def settle_output(
    output: Path,
    format: str | None,
    names: Sequence[str],
    reports: Sequence[str],
    *,
    force: bool,
    with_parts: bool = True,
) -> str:
    """Choose the format of tables; refuse an output that contradicts it or cannot be written.

    Args:
        output: A file, a folder, or `STANDARD_OUTPUT`.
        format: The requested format; None: inferred from the output.
        names: Names of the tables.
        reports: The inputs, which are not replaced.
        force: Replace existing files.
        with_parts: Parts are inputs, too.
    """
    from nsys_pp.run.inputs import list_existing_inputs

    is_printed = output == STANDARD_OUTPUT
    format = format or ("table" if is_printed else SUFFIXES.get(output.suffix))
    if format is None:
        expected = f"expected {', '.join(SUFFIXES)}, or a folder with a `--format`"
        raise click.UsageError(f"unknown extension of `{output}`; {expected}")
    if format == "table":
        if not is_printed:
            raise click.UsageError("a table is printed; omit `-o`, or choose another `--format`")
        return format
    chosen = FORMATS[format]
    if is_printed and chosen.text is None:
        raise click.UsageError(f"{format} cannot be printed; choose a file or a folder with `-o`")
    is_file = is_one_file(output)
    if (is_printed or is_file) and not chosen.holds_many and len(names) > 1:
        raise click.UsageError(f"{format} holds one table; choose it with `--table`, or a folder with `-o`")
    files = [output] if is_file else []
    if output.is_dir() and not is_printed:
        files = [*files_in(output, names, format).values()]
    for path in files:
        check_output(path, force=force, inputs=list_existing_inputs(reports, with_parts=with_parts))
    return format


def check_sort(sort: str | None, tables: Mapping[str, Table[...]]) -> None:
    """Refuse a column that no table has."""
    from nsys_pp.frames.table import describe_columns
    from nsys_pp.output.tables.text import find_sort_column

    columns = [describe_columns(table) for table in tables.values()]
    if sort is not None and not any(find_sort_column(own, sort) for own in columns):
        names = ", ".join(dict.fromkeys(chain.from_iterable(columns)))
        raise click.BadParameter(
            f"no table has a column {sort!r}; expected one of {names}", param_hint="'--sort'"
        )


def output_table(table: Table[...], frame: pl.DataFrame, **options: Any) -> None:
    """Print or write one table, as `output_tables` does."""
    from nsys_pp.frames.table import FilledTable

    output_tables([FilledTable(table=table, frame=frame)], **options)


def output_tables(
    tables: Sequence[FilledTable],
    *,
    output: Path,
    format: str,
    notes: Sequence[str] = (),
    force: bool = False,
    limit: int | None = None,
    contents: Mapping[str, Any] = MappingProxyType({}),
    **rows: Any,
) -> None:
    """Print tables, or write them and report the files; then log the notes.

    Args:
        tables: Tables with their rows.
        output: A file, a folder, or `STANDARD_OUTPUT`.
        format: "table", or the name of a file format.
        notes: Sentences on uncertain results.
        force: Replace existing files.
        limit: Most rows of a table, or of a group of it; 0: all. None: a screen, or all in a file format.
        contents: Keys of the JSON document beside its tables.
        rows: `sort`, `unit`, `is_wide` and `others`, as in `Content`.
    """
    from nsys_pp.output.tables.formats import format_tables, select_frame, write_tables
    from nsys_pp.output.tables.text import Content
    from nsys_pp.roster.identity import name_paths

    if limit is None:
        limit = 0 if format != "table" else _FEW_ROWS if len(tables) > 1 else _ROWS
    content = Content(tables=tables, limit=limit, **rows, document=begin_document(notes, **contents))
    if output != STANDARD_OUTPUT:
        rows_of = ""
        if len(tables) == 1:
            count = len(tables[0].frame)
            few = len(select_frame(content)) if limit and count else count
            rows_of = f": {f'{few:,} of ' * (few < count)}{format_count(count, 'row')}"
        written = write_tables(content, output, format=format, force=force)
        for path in written:
            log_output(f"Wrote {path}{rows_of}", path)
        if force and written and output not in written:
            others = [*{*output.glob(f"*{written[0].suffix}")} - {*written}]
            if others:
                notes = [*notes, f"not written by this run: {name_paths(sorted(others))}"]
    elif format == "table":
        from nsys_pp.output.tables.terminal import print_tables

        with open_screen() as console:
            print_tables(content, console=console)
    else:
        click.echo(escape_text(format_tables(content, format=format)), nl=False)
    log_notes(notes)
