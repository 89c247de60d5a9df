"""Logging options: `--log-format`, `--result`, `--explain-rows` and `--debug`."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, cast

import click

from nsys_pp.cli.interrupts import is_interrupt
from nsys_pp.cli.log import Record, begin_record, log, log_note, log_traceback
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
    help="Write exit status, inputs, outputs, skipped inputs, notes, counts of rows and timings to this file; an existing file is"
    " replaced.",
)
_explain_rows_option = option(
    "--explain-rows",
    section=LOGGING,
    is_flag=True,
    help="List on stderr how many rows of each table of each report were used, and left out for which reason.",
)
_debug_option = option(
    "--debug",
    section=LOGGING,
    is_flag=True,
    help="Show the traceback of an unforeseen error.",
)


def result_options(command: Command) -> Command:
    """Add `--log-format`, `--result`, `--explain-rows` and `--debug`; must be the innermost option decorator, right above `pass_context`."""

    @functools.wraps(command)
    def recorded(
        *args: Any,
        log_format: str,
        result: Path | None,
        explain_rows: bool,
        debug: bool,
        **options: Any,
    ) -> Any:
        ctx = click.get_current_context()
        record = begin_record(ctx, in_json=log_format == "json", shows_tracebacks=debug)
        if result is not None:
            check_result_path(result, ctx.params.get("output"))
        warnings.showwarning = lambda message, *_, **__: log_note(str(message))  # the group restores it
        try:
            returned = _call(ctx, command, args, options)
        except BaseException as error:
            _explain(record, explain_rows)
            log_traceback(trace_unforeseen(error))
            status, description = describe_error(error)
            save_result(ctx, record, result, status=status, error=description, warn_only=True)
            is_reported = isinstance(error, NsysPPError) or is_interrupt(error) or is_unforeseen(error)
            if record.in_json and description and is_reported:
                facts = {"hint": description["hint"]}
                log(description["message"] or "", event="error", level="error", facts=facts)
                ctx.exit(status)
            raise
        _explain(record, explain_rows)
        save_result(ctx, record, result, status=0, error=None, warn_only=False)
        return returned

    return cast(Command, _log_format_option(_result_option(_explain_rows_option(_debug_option(recorded)))))


def _explain(record: Record, is_asked: bool) -> None:
    """List the counts of rows, if that is asked for and the command has them."""
    if is_asked and record.row_counts is not None:
        from nsys_pp.cli.row_counts import log_rows

        log_rows(record.row_counts)


def _call(ctx: click.Context, command: Command, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a command; an invalid value that the library reports is wrong usage of its option."""
    try:
        return command(*args, **options)
    except OptionError as error:
        param = next((param for param in ctx.command.params if param.name == error.option), None)
        if param is None:
            raise click.UsageError(error.message) from None
        raise click.BadParameter(error.message, ctx, param) from None
