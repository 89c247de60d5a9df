"""Logging options: `--log-format` and `--result`."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, cast

import click

from nsys_pp.cli.interrupts import INTERRUPTED
from nsys_pp.cli.log import begin_record, log, log_note
from nsys_pp.cli.result import check_result_path, describe_error, save_result
from nsys_pp.cli.sections import LOGGING, Command, option
from nsys_pp.errors import NsysPPError, OptionError

_log_format_option = option(
    "--log-format",
    section=LOGGING,
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of the lines on stderr; json: one object per line.",
)
_result_option = option(
    "--result",
    section=LOGGING,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write exit status, inputs, outputs, skipped inputs, notes and timings to this file; an existing file is"
    " replaced.",
)


def result_options(command: Command) -> Command:
    """Add `--log-format` and `--result`; must be the innermost option decorator, right above `pass_context`."""

    @functools.wraps(command)
    def recorded(*args: Any, log_format: str, result: Path | None, **options: Any) -> Any:
        ctx = click.get_current_context()
        record = begin_record(ctx, in_json=log_format == "json")
        if result is not None:
            check_result_path(result, ctx.params.get("output"))
        warnings.showwarning = lambda message, *_, **__: log_note(str(message))  # the group restores it
        try:
            returned = _call(ctx, command, args, options)
        except BaseException as error:
            status, description = describe_error(error)
            save_result(ctx, record, result, status=status, error=description, warn_only=True)
            if record.in_json and description and (isinstance(error, NsysPPError) or status == INTERRUPTED):
                facts = {"hint": description["hint"]}
                log(description["message"] or "", event="error", level="error", facts=facts)
                ctx.exit(status)
            raise
        save_result(ctx, record, result, status=0, error=None, warn_only=False)
        return returned

    return cast(Command, _log_format_option(_result_option(recorded)))


def _call(ctx: click.Context, command: Command, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a command; an invalid value that the library reports is wrong usage of its option."""
    try:
        return command(*args, **options)
    except OptionError as error:
        param = next((param for param in ctx.command.params if param.name == error.option), None)
        if param is None:
            raise click.UsageError(error.message) from None
        raise click.BadParameter(error.message, ctx, param) from None
