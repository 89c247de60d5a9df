"""A command of the program.

Its options come from `nsys_pp.options`, and all commands record, log and end in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from nsys_pp.cli.log import log_skipped, record_rows
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.result import run_recorded
from nsys_pp.options import LOGGING, OPTIONS, SECTIONS, Option

STANDARD_OUTPUT = Path("-")
_NAME_WIDTH = 30


class Parsed(click.ParamType[Any]):
    """Values that a function parses; its `ValueError` is wrong usage."""

    name = "value"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TableOption(click.Option):
    """An option of the table; `section` is its heading in `--help`."""

    def __init__(self, option: Option) -> None:
        is_switch = "/" in option.flags
        super().__init__(
            [*option.flags.split(), option.name],
            help=option.help,
            type=None if option.type is bool else _build_type(option),
            is_flag=option.type is bool,
            default=bool(option.default) if option.type is bool else option.default,
            multiple=option.is_many,
            metavar=None if is_switch else option.metavar,
            envvar=option.variable,
        )
        self.section, self.option = option.section, option

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option's name and help text, followed by the values and the default of its command."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        default = self.option.default_text
        if default is None and self.option.type is not bool and self.option.default is not None:
            default = str(self.option.default)
        sentences = [record[1], self.option.values, f"Default: {default}." if default else ""]
        return record[0], " ".join(filter(None, sentences))

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return nothing: defaults are part of the help text."""
        return {}


class TableArgument(click.Argument):
    """An argument of the table, with a help text."""

    def __init__(self, option: Option) -> None:
        is_list = option.metavar is not None
        super().__init__(
            [option.name],
            type=_build_type(option),
            nargs=-1 if is_list else 1,
            required=not option.is_optional,
            metavar=option.metavar,
        )
        self.section, self.text = option.section, option.help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the argument's name and help text."""
        return self.make_metavar(ctx), self.text


def _build_type(option: Option) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.type is Path:
        return click.Path(
            path_type=Path, file_okay=not option.is_folder, dir_okay=option.is_folder in (None, True)
        )
    if option.type is int:
        return click.IntRange(*option.limits)
    return None if option.type is str else Parsed(option.type)


class SectionCommand(click.Command):
    """A command whose `--help` groups options by topic."""

    def invoke(self, ctx: click.Context) -> None:
        """Call the function of the command, and record how it ends."""
        options = dict(ctx.params)
        if options.pop("as_json", False):
            is_given = ctx.get_parameter_source("format") is not click.core.ParameterSource.DEFAULT
            if is_given and options["format"] != "json":
                raise click.UsageError(
                    f"`--json` and `--format {options['format']}` contradict each other; omit one"
                )
            options["format"] = "json"
        if "offsets" in options:
            options["offsets"] = _collect_offsets(options["offsets"])
        assert self.callback is not None
        run_recorded(ctx, self.callback, options)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a heading and a list of options per section."""
        records: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for param in sorted(self.get_params(ctx), key=lambda param: isinstance(param, click.Option)):
            if (record := param.get_help_record(ctx)) is not None:
                records[getattr(param, "section", LOGGING)].append(record)
        widths = [len(name) for rows in records.values() for name, _ in rows]
        width = max((width for width in widths if width <= _NAME_WIDTH), default=0)
        for section, rows in records.items():
            if rows:
                with formatter.section(section):
                    # The padding aligns the help texts of all sections.
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows], _NAME_WIDTH)


class OrderedGroup(click.Group):
    """A group that lists its commands in the order of their definition."""

    command_class = SectionCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their definition."""
        return list(self.commands)


def command(**own: Mapping[str, Any]) -> Callable[[Callable[..., None]], SectionCommand]:
    """Return a decorator that makes a command of a function: it has the options of the table that name it.

    Args:
        own: By option, fields of `Option` that are the command's own, as its default.
    """

    def make(function: Callable[..., None]) -> SectionCommand:
        name = function.__name__
        chosen = [
            option._replace(**own.get(option.name, {}))
            for option in OPTIONS
            if name in option.commands.split()
        ]
        params: list[click.Parameter] = [
            TableOption(option) if option.flags else TableArgument(option) for option in chosen
        ]
        return SectionCommand(name, callback=function, params=params, help=function.__doc__)

    return make


def run_with_progress(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a function of the library, and show its progress."""
    with show_progress() as progress:
        return function(*inputs, progress=progress, **options)


def refuse_given(names: str, reason: str) -> None:
    """Refuse options on the command line, by their names in the table, that have no effect."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        if param.name in names.split() and is_given:
            raise click.UsageError(f"{reason}; omit `{param.opts[0]}`")


def end_with(result: Any, status: int = 0) -> None:
    """Record the rows of a result and list its skipped inputs.

    Exit with a status, or with 3 if there are any.
    """
    record_rows(result.row_counts)
    log_skipped(result.skipped)
    if status := status or 3 * bool(result.skipped):
        click.get_current_context().exit(status)


def parse_table_names(
    tables: Mapping[str, object], others: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return the fields of `--table` of a command: `all` has no tables of `others`."""
    names = (*tables, *(others or {}))

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        if chosen == ("all",):
            return tuple(tables)
        for name in chosen:
            if name not in names:
                raise ValueError(f"unknown table {name!r}; expected {', '.join(names)} or all")
        return chosen

    more = f"; not in all: {', '.join(others)}" if others else ""
    return {"type": parse, "values": f"Names: {', '.join(tables)}{more}."}


def _collect_offsets(offsets: tuple[tuple[str, int], ...]) -> dict[str, int]:
    machines = [machine for machine, _ in offsets]
    for machine in machines:
        if machines.count(machine) > 1:
            raise click.UsageError(f"duplicate `--offset` for machine `{machine}`")
    return dict(offsets)
