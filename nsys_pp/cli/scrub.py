"""`nsys-pp scrub`: copies that are safe to share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command
from nsys_pp.cli.log import log_output
from nsys_pp.units import format_bytes, format_count


@command(
    output={"default_text": "required: a file, or a folder for several reports"},
    reports={"help": "Reports, folders of them, or quoted patterns."},
)
def scrub(reports: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Write a copy of a report that is safe to share.

    The copy lacks the environment, command lines, strings that no event refers to, other tables, and free
    pages; all results of nsys-pp are the same. Names of ranges, kernels, threads and processes stay.
    Pseudonyms are consistent within one call. Parts and traces lack all this already.

    Copies of reports are in SQLite. Copies of a folder keep their paths below it.

    \b
    Examples:
      nsys-pp scrub report.sqlite -o clean.sqlite --hosts --users --paths
      nsys-pp scrub reports/ -o clean/ --hosts
    """
    if output is None or output == STANDARD_OUTPUT:
        raise click.UsageError("name the copy, or a folder, with `-o`")
    result = nsys_pp.scrub(reports, output, **options)
    for path, copy in result.copies.items():
        removed, size = result.removed[path], format_bytes(copy.stat().st_size)
        texts, tables = format_count(removed.text_count, "text"), format_count(len(removed.tables), "table")
        log_output(f"Wrote {copy} ({size}), without {texts} and {tables}, from {path}.", copy)
