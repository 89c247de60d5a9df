"""Options for whom no person watches: a log to be read by programs, and the result as a file."""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from nsys_pp import commands as api
from nsys_pp.cli.interrupts import INTERRUPTED, is_interrupt
from nsys_pp.cli.record import Record, begin_record, describe_outputs, note, say
from nsys_pp.errors import NsysPPError
from nsys_pp.write.result import write_result

Command = TypeVar("Command", bound=Callable[..., Any])

_WITHOUT_PARTS = ("extract", "info", "project")


def result_options(command: Command) -> Command:
    """Add `--log-format` and `--result`; stands below other options, and the command needs not know."""

    @functools.wraps(command)
    def recorded(*args: Any, log_format: str, result: Path | None, **options: Any) -> Any:
        ctx = click.get_current_context()
        record = begin_record(ctx, in_json=log_format == "json")
        if result is not None:
            _check_result(result, ctx.params.get("output"))
        warnings.showwarning = lambda message, *_, **__: note(str(message))  # the group puts it back
        try:
            done = command(*args, **options)
        except BaseException as error:
            status, told = _judge(error)
            _keep(ctx, record, result, status, told, is_last_word=False)
            if record.in_json and told and (isinstance(error, NsysPPError) or status == INTERRUPTED):
                say(told["message"] or "", event="error", level="error", facts={"hint": told["hint"]})
                ctx.exit(status)
            raise
        _keep(ctx, record, result, 0, None, is_last_word=True)
        return done

    recorded = click.option(
        "--result",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE.json",
        help="Also write what was done, for programs: exit status, outputs, inputs, what was skipped and why, notes,"
        " timings; replaced if it is there.",
    )(recorded)
    recorded = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="What stderr says; json: an object a line.",
    )(recorded)
    return cast(Command, recorded)


def _check_result(path: Path, output: Any) -> None:
    """Refuse what would be written over something else."""
    if path.suffix != ".json":
        raise click.UsageError(f"`--result` is a .json file: `{path}` is none")
    if output is not None and Path(output).absolute() == path.absolute():
        raise click.UsageError(f"`--result` and `-o` are both `{path}`: name two files")
    api.check_output(path, force=True)


def _judge(error: BaseException) -> tuple[int, dict[str, str | None] | None]:
    """Give the exit status that an error leads to, and what is wrong, if anything is."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code, None
    if isinstance(error, NsysPPError):
        return 1, {"message": error.message, "hint": error.hint}
    if isinstance(error, click.ClickException):
        return error.exit_code, {"message": error.format_message(), "hint": None}
    if is_interrupt(error):
        return INTERRUPTED, {"message": "Interrupted", "hint": None}
    return 1, {"message": f"{type(error).__name__}: {error}", "hint": None}


def _keep(
    ctx: click.Context,
    record: Record,
    result: Path | None,
    status: int,
    error: dict[str, str | None] | None,
    *,
    is_last_word: bool,
) -> None:
    """Write the result; where something else is wrong already, that it cannot be is only noted."""
    if result is None:
        return
    try:
        write_result(result, _describe(ctx, record, status, error))
    except NsysPPError as refused:
        if is_last_word:
            raise
        note(refused.message)


def _describe(
    ctx: click.Context, record: Record, status: int, error: dict[str, str | None] | None
) -> dict[str, Any]:
    """Put the record into plain types; the keys are stable."""
    record.enter(None)
    named = [
        str(name)
        for name in (*ctx.params.get("reports", ()), ctx.params.get("a"), ctx.params.get("b"))
        if name
    ]
    return {
        "command": ctx.info_name,
        "version": version("nsys-pp"),
        "exit_status": status,
        "error": error,
        "outputs": describe_outputs(record.outputs or _find_output(ctx, status)),
        "named": named,
        "inputs": _find_inputs(ctx, named),
        "skipped": [
            {"path": str(path), "reason": why.message, "hint": why.hint} for path, why in record.skipped
        ],
        "notes": record.notes,
        "started": record.started,
        "timings": {
            "wall_s": round(time.monotonic() - record.began_s, 3),
            "phases": [{"phase": name, "wall_s": round(wall_s, 3)} for name, wall_s in record.phases.items()],
        },
        "peak_memory_bytes": _measure_peak(),
    }


def _find_output(ctx: click.Context, status: int) -> list[Path]:
    """Give what the command was told to write, where it did not say what it wrote."""
    output = ctx.params.get("output")
    is_written = status in (0, 3) and output is not None and str(output) != "-" and Path(output).exists()
    return [Path(output)] if is_written else []  # type: ignore[arg-type]


def _find_inputs(ctx: click.Context, named: list[str]) -> list[str]:
    """List the reports that were meant, as far as they are there."""
    runs = [[name] for name in named] if ctx.info_name == "compare" else [named]
    with_parts = ctx.info_name not in _WITHOUT_PARTS
    try:
        return [str(path) for run in runs for path in api.find_reports(run, with_parts=with_parts)]
    except NsysPPError:
        return []


def _measure_peak() -> dict[str, int] | None:
    """Tell the most memory that this process and the largest of its own have had; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    who = {"this_process": resource.RUSAGE_SELF, "largest_worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(one).ru_maxrss * unit for name, one in who.items()}
