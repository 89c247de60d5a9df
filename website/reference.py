"""The reference of commands, tables and frames, made of the code that defines them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import polars as pl

from nsys_pp.cli import main
from nsys_pp.commands.sql import list_sql_columns
from nsys_pp.frames.table import AnyTable, describe_columns
from nsys_pp.options import LOGGING, SECTIONS
from nsys_pp.registry import Registry
from nsys_pp.tables.registry import SUMMARY_TABLES, WORK_TABLES
from nsys_pp.tables.registry import TABLES as PIPELINE_TABLES

_PROGRAM = "nsys-pp"
_LITERAL = "\b"  # before a paragraph whose lines are kept


def write_reference(folder: Path) -> list[str]:
    """Write the pages of the reference, and return their names from the root of the sources, in the order of a reader."""
    folder.mkdir(parents=True)
    pages = {f"{_PROGRAM}-{name}": text for name, text in format_commands().items()}
    pages["tables"] = format_tables()
    pages["sql-tables"] = format_sql_tables()
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    return [f"docs/reference/{name}.md" for name in pages]


def format_commands() -> dict[str, str]:
    """Format a page per command of the program, by name."""
    context = click.Context(main, info_name=_PROGRAM)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {
        name: "\n".join(_format_command(command, name, context, "#"))
        for name, command in found.items()
        if command is not None
    }


def _format_command(command: click.Command, name: str, parent: click.Context, marks: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    summary, *description = _split_paragraphs(command.help or "")
    yield f"{marks} {context.command_path}"
    yield from ("", _escape(" ".join(summary.split())), "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{context.command_path} {usage}", "```", "")
    for paragraph in description:
        yield from (*_format_paragraph(paragraph), "")
    yield from _format_options(context, command, marks)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from ("", *_format_command(found, inner, context, f"{marks}#"))


def _split_paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip()]


def _format_options(context: click.Context, command: click.Command, marks: str) -> Iterator[str]:
    """Format arguments and options as lists of definitions, a heading per section of `--help`."""
    records: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
    for param in command.get_params(context):
        if (record := param.get_help_record(context)) is not None:
            records[getattr(param, "section", LOGGING)].append(record)
    for section, rows in records.items():
        if rows:
            yield from (f"{marks}# {section}", "")
        for option, text in rows:
            yield from (f"`{option}`", f": {_escape(text)}", "")


def _format_paragraph(paragraph: str) -> list[str]:
    """Format a paragraph; an example keeps its lines."""
    if paragraph.lstrip("\n ").startswith(_LITERAL):
        lines = paragraph.replace(_LITERAL, "").strip("\n").split("\n")
        title, *rest = [line for line in lines if line.strip()]
        return [_escape(title.strip()), "", "```text", *(line.strip() for line in rest), "```"]
    return [_escape(" ".join(paragraph.split()))]


def format_tables() -> str:
    """Format the page of all tables of `pipeline` and `summary`, with the meaning of each column."""
    lines = ["# Tables", "", "Columns in data formats, in order. Endings of names are units.", ""]
    groups: list[tuple[str, Iterable[Registry[AnyTable]]]] = [
        ("pipeline", (PIPELINE_TABLES, WORK_TABLES)),
        ("summary", (SUMMARY_TABLES,)),
    ]
    for command, registries in groups:
        lines += [f"## Tables of `{_PROGRAM} {command}`", ""]
        for registry in registries:
            for name, table in registry.items():
                lines += _format_table(name, table)
    return "\n".join(lines)


def _format_table(name: str, table: AnyTable) -> Iterator[str]:
    yield from (f"### `{name}`: {_escape(table.title)}", "", _escape(table.caption), "")
    rows = [
        (f"`{column.name}`", f"{_build_type(column.dtype)}", _escape(column.meaning))
        for column in describe_columns(table).values()
    ]
    yield from _format_rows(("column", "type", "meaning"), rows)


def format_sql_tables() -> str:
    """Format the page of the frames that queries and the library have besides the tables."""
    columns = list_sql_columns()
    known = {*PIPELINE_TABLES, *(f"summary_{name}" for name in SUMMARY_TABLES)}
    lines = [
        "# Frames of queries",
        "",
        f"Frames of `{_PROGRAM} sql` beyond the [tables](tables.md), in nanoseconds. The tables have the same names there; those of",
        "`summary` begin with `summary_`.",
        "",
    ]
    for (name,), rows in columns.group_by("table", maintain_order=True):
        if name in known:
            continue
        lines += [f"## `{name}`", ""]
        cells = [(f"`{row['column']}`", row["type"], _escape(row["meaning"])) for row in rows.to_dicts()]
        lines += _format_rows(("column", "type", "meaning"), cells)
    return "\n".join(lines)


def _format_rows(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def _build_type(dtype: pl.DataType | type[pl.DataType]) -> str:
    return str(dtype.base_type() if isinstance(dtype, pl.DataType) else dtype)


def _escape(text: str) -> str:
    r"""Escape the characters of a plain text that have a meaning in Markdown, but for code in backticks.

    >>> print(_escape("`a_b` <c> *d* [e]"))
    `a_b` \<c> \*d\* \[e\]
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<\[\]#])", r"\\\1", part) for part in parts
    )
