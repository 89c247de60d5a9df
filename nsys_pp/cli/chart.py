"""`nsys-pp chart`: a pipeline drawn as an HTML page, SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log_notes, log_output, record_verdict
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import (
    STANDARD_OUTPUT,
    force_option,
    format_option,
    output_option,
    title_option,
)
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.training import training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SectionCommand
from nsys_pp.units import format_bytes, format_count

_FORMATS = ("html", "svg", "png")


@click.command(cls=SectionCommand)
@output_option("pipeline.html")
@format_option(_FORMATS)
@force_option
@input_options
@title_option
@training_options
@clock_and_rank_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def chart(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
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
    with show_progress() as progress:
        charted = nsys_pp.chart(
            reports,
            output,
            format=format,
            force=force,
            progress=progress,
            **options,
        )
    log_skipped(charted.skipped)
    record_verdict(charted.verdict)
    log_notes(charted.notes)
    size = format_bytes(output.stat().st_size)
    log_output(
        f"Wrote {output} ({size}): {format_count(charted.jobs, 'job')} on {format_count(charted.lanes, 'lane')}"
        f" in {format_count(charted.steps, 'step')}.",
        output,
    )
    exit_if_skipped(ctx, charted.skipped, charted.row_counts)
