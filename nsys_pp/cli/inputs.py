"""Inputs of a command: waiting for them, and the list of skipped ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.log import current_record, log
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.waiting import Wait, wait_for_reports
from nsys_pp.errors import NsysPPError


def wait_for_inputs(
    reports: Sequence[str],
    wait: Wait | None,
    *,
    keep_going: bool,
    progress: Progress | None,
    output: Path | None = None,
    force: bool = False,
) -> tuple[Sequence[Any], list[Any]]:
    """Wait for inputs, if `wait` is set.

    Args:
        reports: Inputs as on the command line.
        wait: Number of inputs and time limit.
        keep_going: Continue with the complete inputs at the time limit.
        progress: Receives the state of the wait.
        output: Output file, checked before waiting.
        force: Accept an existing output file.

    Returns:
        The inputs to read, and the incomplete ones with their errors.
    """
    if wait is None:
        return reports, []
    if output is not None:
        api.check_output(output, force=force)
    waited = wait_for_reports(reports, wait, keep_going=keep_going, progress=progress)
    return waited.paths, waited.skipped


def exit_if_skipped(ctx: click.Context, skipped: Sequence[tuple[Path, NsysPPError]]) -> None:
    """List the skipped inputs; exit with status 3 if there are any."""
    current_record().skipped.extend(skipped)
    for path, error in skipped:
        facts = {"path": str(path), "reason": error.message, "hint": error.hint}
        log(f"skipped {path}: {error.message}", event="skipped", level="warning", facts=facts)
    if skipped:
        ctx.exit(3)
