"""`nsys-pp chart`: a pipeline drawn as an HTML page, SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, run_with_progress
from nsys_pp.cli.log import log_notes, log_output, log_skipped, record_verdict
from nsys_pp.units import format_bytes, format_count

_FORMATS = ("html", "svg", "png")


@command(
    output={"default": Path("pipeline.html")},
    format={"choices": _FORMATS, "default_text": "inferred from the file extension"},
)
def chart(reports: tuple[str, ...], output: Path, format: str | None, **options: Any) -> None:
    """Draw a pipeline as an HTML page, SVG or PNG.

    A lane per GPU with its jobs, messages and bubbles, coloured by cause. The page needs no network
    and opens from disk.

    \b
    Example:
      nsys-pp chart node*/report*.sqlite -o run.html
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a chart cannot be printed; choose a file with `-o`")
    if format is None and output.suffix.removeprefix(".") not in _FORMATS:
        raise click.UsageError(
            f"unknown extension of `{output}`; expected .html, .svg or .png, or choose a `--format`"
        )
    charted = run_with_progress(nsys_pp.chart, reports, output, format=format, **options)
    log_skipped(charted.skipped)
    record_verdict(charted.verdict)
    log_notes(charted.notes)
    counts = f"{format_count(charted.jobs, 'job')} on {format_count(charted.lanes, 'lane')}"
    size, steps = format_bytes(output.stat().st_size), format_count(charted.steps, "step")
    log_output(f"Wrote {output} ({size}): {counts} in {steps}.", output)
    end_with(charted)
