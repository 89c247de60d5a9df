"""Functions that format tables as text, and write them to files, in any format of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nsys_pp.frames.table import FilledTable
from nsys_pp.output.files import check_output, replace_file, translate_errors
from nsys_pp.output.tables.format import Content
from nsys_pp.output.tables.format_registry import FORMATS, files_in, is_one_file


def format_table(table: FilledTable, *, format: str) -> str:
    """Format a single table as text.

    Args:
        table: The table with its rows.
        format: Name of a text format: "csv", "json" (a list of objects) or "markdown".
    """
    return _format(Content(tables=[table], is_single=True), format)


def format_tables(
    tables: Sequence[FilledTable],
    *,
    format: str,
    limit: int = 0,
    sort: str | None = None,
    unit: str | None = None,
) -> str:
    """Format tables as one text.

    Args:
        tables: Tables with their rows.
        format: Name of a text format: "json" (an object of lists), "markdown", or "csv" for one table.
        limit: Most rows of each group, and a third as many parts of each; 0: all.
        sort: Column that sorts the rows, where a table has it; see `find_sort_column`.
        unit: Unit of all times. None: nanoseconds in data, chosen by the values in Markdown.
    """
    return _format(Content(tables=tables, limit=limit, sort=sort, unit=unit), format)


def write_table(table: FilledTable, path: Path, *, format: str, force: bool) -> None:
    """Write a single table to a file.

    Args:
        table: The table with its rows.
        path: The file; replaced only with `force`.
        format: Name of a format.
        force: Replace an existing file.

    Raises:
        OutputError: It cannot be written.
    """
    with replace_file(path, force=force) as target:
        FORMATS[format].write(Content(tables=[table], is_single=True), target)


def write_tables(
    tables: Sequence[FilledTable],
    output: Path,
    *,
    format: str,
    limit: int = 0,
    sort: str | None = None,
    unit: str | None = None,
    force: bool,
) -> list[Path]:
    """Write tables to one file that can contain them all, or to a folder with a file for each.

    Args:
        tables: Tables with their rows; data formats leave out those that could not be built.
        output: A file if it has an extension of `SUFFIXES`, otherwise a folder, which is created if missing.
        format: Name of a format.
        limit: As in `format_tables`.
        sort: As in `format_tables`.
        unit: As in `format_tables`.
        force: Replace existing files.

    Returns:
        The paths of the files.

    Raises:
        OutputError: A file cannot be written; existing files are detected before any file is written.
        ValueError: The format holds one table, and there are several.
    """
    content = Content(tables=tables, limit=limit, sort=sort, unit=unit)
    if is_one_file(output):
        with replace_file(output, force=force) as target:
            FORMATS[format].write(content, target)
        return [output]
    with translate_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    written = [filled for filled in tables if not (filled.missing and FORMATS[format].is_data)]
    paths = files_in(output, [filled.table.name for filled in written], format)
    for path in paths.values():
        check_output(path, force=force)
    for filled, path in zip(written, paths.values(), strict=True):
        with replace_file(path, force=force) as target:
            FORMATS[format].write(replace(content, tables=[filled], is_single=True), target)
    return [*paths.values()]


def _format(content: Content, format: str) -> str:
    text = FORMATS[format].text
    if text is None:
        raise ValueError(f"{format} is a binary format; write it to a file")
    return text(content)
