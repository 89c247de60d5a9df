"""The result of a command as a file: exit status, inputs, outputs, notes and timings."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click

from nsys_pp.cli.interrupts import describe_end, is_interrupt
from nsys_pp.cli.log import Record, describe_outputs, log_note
from nsys_pp.cli.unforeseen import explain_unforeseen
from nsys_pp.errors import NsysPPError

_WITHOUT_PARTS = ("extract", "info", "project")


def check_result_path(path: Path, output: Any) -> None:
    """Check that `--result` is a writable .json file other than the output."""
    from nsys_pp.output.files import check_output

    if path.suffix != ".json":
        raise click.UsageError(f"invalid `--result {path}`; expected a .json file")
    if output is not None and Path(output).absolute() == path.absolute():
        raise click.UsageError(f"`--result` and `-o` are the same file `{path}`")
    check_output(path, force=True)


def describe_error(error: BaseException) -> tuple[int, dict[str, str | None] | None]:
    """Return the exit status of an error, and its message and hint; None for a plain exit."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code, None
    if isinstance(error, NsysPPError):
        return 1, {"message": error.message, "hint": error.hint}
    if isinstance(error, click.ClickException):
        return error.exit_code, {"message": error.format_message(), "hint": None}
    if is_interrupt(error):
        end = describe_end()
        return end.status, {"message": end.message, "hint": end.hint}
    message, hint = explain_unforeseen(error)
    return 1, {"message": message, "hint": hint}


def save_result(
    ctx: click.Context,
    record: Record,
    result: Path | None,
    *,
    status: int,
    error: dict[str, str | None] | None,
    warn_only: bool,
) -> None:
    """Write the result file, if there is one; with `warn_only`, a failure to do so is logged as a note."""
    if result is None:
        return
    from nsys_pp.output.result import write_result

    try:
        write_result(result, _describe(ctx, record, status, error))
    except NsysPPError as refused:
        if not warn_only:
            raise
        log_note(refused.message)


def _describe(
    ctx: click.Context, record: Record, status: int, error: dict[str, str | None] | None
) -> dict[str, Any]:
    """Return the content of the result file; its keys are stable."""
    from importlib.metadata import version

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
            {"path": str(path), "reason": error.message, "hint": error.hint} for path, error in record.skipped
        ],
        "notes": record.notes,
        "verdict": record.verdict,
        "rows": _describe_rows(record),
        "started": record.started,
        "timings": {
            "wall_s": round(time.monotonic() - record.began_s, 3),
            "phases": [{"phase": name, "wall_s": round(wall_s, 3)} for name, wall_s in record.phases.items()],
        },
        "peak_memory_bytes": _measure_peak(),
    }


def _describe_rows(record: Record) -> list[dict[str, Any]] | None:
    """Return the rows of each table of each report; None where the command has no counts."""
    if record.row_counts is None:
        return None
    from nsys_pp.cli.row_counts import list_rows

    return list_rows(record.row_counts)


def _find_output(ctx: click.Context, status: int) -> list[Path]:
    """Return the file of `-o`, for commands that record no outputs."""
    output = ctx.params.get("output")
    is_written = status in (0, 3) and output is not None and str(output) != "-" and Path(output).exists()
    return [Path(output)] if is_written else []  # type: ignore[arg-type]


def _find_inputs(ctx: click.Context, named: list[str]) -> list[str]:
    """Return the paths of existing inputs."""
    from nsys_pp.run.batch import list_existing_inputs

    runs = [[name] for name in named] if ctx.info_name == "compare" else [named]
    with_parts = ctx.info_name not in _WITHOUT_PARTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the command has shown them as notes
        try:
            return [str(path) for run in runs for path in list_existing_inputs(run, with_parts=with_parts)]
        except NsysPPError:
            return []


def _measure_peak() -> dict[str, int] | None:
    """Return the peak memory of this process and of its largest worker; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    targets = {"this_process": resource.RUSAGE_SELF, "largest_worker": resource.RUSAGE_CHILDREN}
    return {name: resource.getrusage(target).ru_maxrss * unit for name, target in targets.items()}
