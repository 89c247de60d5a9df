"""Output options: `-o`, `--format`, `--json`, `--title` and `--force`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import click

from nsys_pp.cli.sections import OUTPUT, Command, option

STANDARD_OUTPUT = Path("-")

force_option = option("--force", section=OUTPUT, is_flag=True, help="Replace existing output files.")
title_option = option(
    "--title", section=OUTPUT, help="Title of the page.", default_text="name of the output file"
)


def output_option(
    default: str | None = None, *, default_text: str | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds `-o`, a `Path` named `output`."""
    return option(
        "-o",
        "--output",
        section=OUTPUT,
        type=click.Path(path_type=Path),
        default=None if default is None else Path(default),
        help="Output file or folder.",
        default_text=default_text or default,
    )


def format_option(
    choices: Sequence[str],
    *,
    default: str | None = None,
    default_text: str | None = "inferred from the file extension",
) -> Callable[[Command], Command]:
    """Return a decorator that adds `--format`, and `--json` where "json" is one of the choices.

    The command receives `format`; None if neither option is used and there is no default.
    """

    def add(command: Command) -> Command:
        add_format = option(
            "--format",
            section=OUTPUT,
            type=click.Choice(choices),
            default=default,
            help="Output format.",
            default_text=default_text,
        )
        return add_format(_add_json(command) if "json" in choices else command)

    return add


def _add_json(command: Command) -> Command:
    @functools.wraps(command)
    def with_format(*args: Any, format: str | None, as_json: bool, **options: Any) -> Any:
        if as_json:
            source = click.get_current_context().get_parameter_source("format")
            is_default = source is click.core.ParameterSource.DEFAULT
            if not is_default and format != "json":
                raise click.UsageError(f"`--json` and `--format {format}` contradict each other; omit one")
            format = "json"
        return command(*args, format=format, **options)

    add = option("--json", "as_json", section=OUTPUT, is_flag=True, help="Short form of --format json.")
    return cast(Command, add(with_format))


verbose_option = option(
    "--verbose",
    section=OUTPUT,
    is_flag=True,
    help="Also list details: each of many reports, tables of facts, rows without an event.",
)
