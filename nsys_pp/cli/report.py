"""`nsys-pp report`: one page from the verdict to its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log_notes, log_output, log_skipped, log_verdict
from nsys_pp.units import format_bytes, format_count


@command(output={"default": Path("report.html")})
def report(reports: tuple[str, ...], output: Path, trace: str | None, **options: Any) -> None:
    """Write one page: verdict, charts, heat map, tables.

    The page needs no network and opens from disk: the findings with links to their evidence, a typical
    step and the longest one, every rank over all steps, bubbles, stragglers, communication, kernels, host
    gaps, memory, clocks, and what was not recorded.

    \b
    Example:
      nsys-pp report node*/report*.sqlite -o report.html --trace run.pftrace
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a page cannot be printed; choose a file with `-o`")
    written = run_with_progress(nsys_pp.report, reports, output, trace=trace, **options)
    log_skipped(written.skipped)
    log_notes(written.notes)
    if trace is not None and "://" not in trace and not Path(trace).is_file():
        log_notes([f"no such file: `{trace}`; `nsys-pp merge REPORT... -o {trace}` writes it"])
    counts = f"{format_count(written.steps, 'step')} of {format_count(written.lanes, 'rank')}"
    log_output(f"Wrote {output} ({format_bytes(output.stat().st_size)}): {counts}.", output)
    log_verdict(written.verdict)
    end_with(written)
