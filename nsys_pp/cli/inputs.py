"""Skipped inputs of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsys_pp.cli.log import current_record, log, log_traceback, record_rows
from nsys_pp.errors import REPORT_IT, NsysPPError, UnforeseenError

if TYPE_CHECKING:
    import polars as pl


def exit_if_skipped(
    ctx: click.Context, skipped: Sequence[tuple[Path, NsysPPError]], row_counts: pl.DataFrame | None
) -> None:
    """Record the counts of rows, and list the skipped inputs; exit with status 3 if there are any."""
    record_rows(row_counts)
    log_skipped(skipped)
    if skipped:
        ctx.exit(3)


def log_skipped(skipped: Sequence[tuple[Path, NsysPPError]]) -> None:
    """List the skipped inputs that are not listed yet: before the verdict, as it lacks them."""
    record = current_record()
    skipped = [entry for entry in skipped if entry not in record.skipped]
    record.skipped.extend(skipped)
    for path, error in skipped:
        facts = {"path": str(path), "reason": error.message, "hint": error.hint}
        log(f"skipped {path}: {error.message}", event="skipped", level="warning", facts=facts)
        if isinstance(error, UnforeseenError):
            log_traceback(error.details)
    if any(isinstance(error, UnforeseenError) for _, error in skipped):
        log(REPORT_IT, event="hint", prefix="hint: ")
