"""`nsys-pp scrub`: copies that are safe to share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.log import log_output
from nsys_pp.cli.options.inputs import nsys_option
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, output_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.sections import OUTPUT, SELECTION, SectionArgument, SectionCommand, option
from nsys_pp.units import format_bytes, format_count


@click.command(cls=SectionCommand)
@output_option(default_text="required: a file, or a folder for several reports")
@force_option
@option(
    "--hosts",
    section=SELECTION,
    is_flag=True,
    help="Replace host names, and ids of machines and GPUs, by pseudonyms.",
)
@option("--users", section=SELECTION, is_flag=True, help="Replace user names by pseudonyms.")
@option("--paths", section=SELECTION, is_flag=True, help="Replace absolute paths by pseudonyms.")
@option(
    "--keep-table",
    "keep_tables",
    section=SELECTION,
    multiple=True,
    metavar="NAME",
    help="Copy another table as it is, unchecked; repeatable.",
    default_text="only tables that nsys-pp reads",
)
@nsys_option
@result_options
@click.argument(
    "reports",
    cls=SectionArgument,
    section=OUTPUT,
    text="Reports, folders of reports, or quoted patterns.",
    nargs=-1,
    required=True,
    metavar="REPORT...",
)
def scrub(
    *, reports: tuple[str, ...], output: Path | None, keep_tables: tuple[str, ...], **options: Any
) -> None:
    """Write a copy of a report that is safe to share.

    The copy lacks the environment, command lines, strings that no event refers to, other tables, and free pages; all
    results of nsys-pp are the same. Names of ranges, kernels, threads and processes stay. Pseudonyms are consistent
    within one call. Parts and traces are not copied: extract or merge the copies.

    Copies of reports are in SQLite. Copies of a folder keep their paths below it.

    \b
    Examples:
      nsys-pp scrub report.sqlite -o clean.sqlite --hosts --users --paths
      nsys-pp scrub reports/ -o clean/ --hosts
    """
    if output is None or output == STANDARD_OUTPUT:
        raise click.UsageError("name the copy, or a folder, with `-o`")
    result = nsys_pp.scrub(reports, output, keep_tables=keep_tables, **options)
    for path, copy in result.copies.items():
        size, removed = format_bytes(copy.stat().st_size), result.removed[path]
        texts, tables = format_count(removed.text_count, "text"), format_count(len(removed.tables), "table")
        log_output(f"Wrote {copy} ({size}), without {texts} and {tables}, from {path}.", copy)
