"""Logging options: `--log-format`, `--result` and `--debug`."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, cast

import click

from nsys_pp.cli.interrupts import is_interrupt
from nsys_pp.cli.log import begin_record, log, log_note, log_traceback
from nsys_pp.cli.result import check_result_path, describe_error, save_result
from nsys_pp.cli.sections import LOGGING, Command, option
from nsys_pp.cli.unforeseen import is_unforeseen, trace_unforeseen
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
_debug_option = option(
    "--debug",
    section=LOGGING,
    is_flag=True,
    help="Show the traceback of an unforeseen error.",
)


def result_options(command: Command) -> Command:
    """Add `--log-format`, `--result` and `--debug`; must be the innermost option decorator, right above `pass_context`."""

    @functools.wraps(command)
    def recorded(*args: Any, log_format: str, result: Path | None, debug: bool, **options: Any) -> Any:
        ctx = click.get_current_context()
        record = begin_record(ctx, in_json=log_format == "json", shows_tracebacks=debug)
        if result is not None:
            check_result_path(result, ctx.params.get("output"))
        warnings.showwarning = lambda message, *_, **__: log_note(str(message))  # the group restores it
        try:
            returned = _call(ctx, command, args, options)
        except BaseException as error:
            log_traceback(trace_unforeseen(error))
            status, description = describe_error(error)
            save_result(ctx, record, result, status=status, error=description, warn_only=True)
            is_reported = isinstance(error, NsysPPError) or is_interrupt(error) or is_unforeseen(error)
            if record.in_json and description and is_reported:
                facts = {"hint": description["hint"]}
                log(description["message"] or "", event="error", level="error", facts=facts)
                ctx.exit(status)
            raise
        save_result(ctx, record, result, status=0, error=None, warn_only=False)
        return returned

    return cast(Command, _log_format_option(_result_option(_debug_option(recorded))))


def _call(ctx: click.Context, command: Command, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a command; an invalid value that the library reports is wrong usage of its option."""
    try:
        return command(*args, **options)
    except OptionError as error:
        param = next((param for param in ctx.command.params if param.name == error.option), None)
        if param is None:
            raise click.UsageError(error.message) from None
        raise click.BadParameter(error.message, ctx, param) from None
