"""Manual pages of all commands, in the format of man(7), made from their `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from nsys_pp.cli.sections import LOGGING, SECTIONS

_PROGRAM = "nsys-pp"
LITERAL = "\b"
"""Before a paragraph whose lines are kept."""


def format_man_pages(group: click.Group, *, version: str) -> dict[str, str]:
    """Format the manual page of a group and of each of its commands, and of theirs: the text by name of file.

    Args:
        group: The group.
        version: Of the program.
    """
    ctx = click.Context(group, info_name=_PROGRAM)
    commands = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    known = {name: command for name, command in commands.items() if command is not None}
    pages = {f"{_PROGRAM}.1": _format_page(ctx, group, version, known)}
    for name, command in known.items():
        inner = click.Context(command, info_name=name, parent=ctx)
        below = dict(command.commands) if isinstance(command, click.Group) else {}
        pages[f"{_PROGRAM}-{name}.1"] = _format_page(inner, command, version, below)
        for last, innermost in below.items():
            context = click.Context(innermost, info_name=last, parent=inner)
            pages[f"{_PROGRAM}-{name}-{last}.1"] = _format_page(context, innermost, version, {})
    return pages


def _format_page(
    ctx: click.Context, command: click.Command, version: str, commands: Mapping[str, click.Command]
) -> str:
    title = ctx.command_path.replace(" ", "-")
    summary, *description = split_paragraphs(command.help or "")
    lines = [
        f'.TH "{title.upper()}" "1" "" "nsys-pp {version}" "nsys-pp"',
        ".SH NAME",
        f"{_escape(title)} \\- {_escape(' '.join(summary.split()).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escape(ctx.command_path)}",
        _escape(" ".join(command.collect_usage_pieces(ctx))),
        *([".SH DESCRIPTION"] * bool(description)),
        *(line for paragraph in description for line in _format_paragraph(paragraph)),
        *_format_options(ctx, command),
    ]
    if commands:
        lines.append(".SH COMMANDS")
        for name, inner in commands.items():
            lines += [
                ".TP",
                f".BR {_escape(title)}\\-{_escape(name)} (1)",
                _escape(inner.get_short_help_str(200)),
            ]
    others = "nsys" if ctx.parent is None else _escape(ctx.parent.command_path.replace(" ", "-"))
    lines += [".SH SEE ALSO", f".BR {others} (1)"]
    return "\n".join(lines) + "\n"


def _format_options(ctx: click.Context, command: click.Command) -> Iterator[str]:
    """Format arguments and options, a heading per section of `--help`."""
    records: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is not None:
            records[getattr(param, "section", LOGGING)].append(record)
    for section, rows in records.items():
        if rows:
            yield f'.SH "{section.upper()}"'
        for name, text in rows:
            yield from (".TP", f".B {_escape(name)}", _escape(text))


def split_paragraphs(text: str) -> list[str]:
    """Split a help text into its paragraphs."""
    return [part for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip()]


def _format_paragraph(paragraph: str) -> list[str]:
    """Format a paragraph; an example keeps its lines."""
    lines = paragraph.strip("\n").split("\n")
    if lines[0].strip() == LITERAL.strip() or lines[0].startswith(LITERAL):
        kept = [line.replace(LITERAL, "") for line in lines]
        return [".PP", ".nf", *(_escape(line) for line in kept if line.strip()), ".fi"]
    return [".PP", _escape(" ".join(paragraph.split()))]


def _escape(text: str) -> str:
    r"""Escape the characters with a meaning in man(7), and those outside ASCII.

    >>> print(_escape(".TH a-b \\ 'x' ·"))
    \&.TH a\-b \e 'x' \[u00B7]
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)
    return "\\&" + text if text[:1] in (".", "'") else text
