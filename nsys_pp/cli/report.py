"""`nsys-pp report`: one page from the verdict to its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log_note, log_notes, log_output, log_verdict
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, output_option, title_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.training import training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, SectionCommand, option
from nsys_pp.units import format_bytes, format_count


@click.command(cls=SectionCommand)
@output_option("report.html")
@force_option
@input_options
@title_option
@option(
    "--trace",
    section=OUTPUT,
    metavar="FILE|URL",
    help="Trace of the run (nsys-pp merge), which the page opens at findings and steps: by commands of `nsys-pp open` for"
    " a file, by links for an address.",
)
@training_options
@clock_and_rank_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def report(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path,
    trace: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Write one page: verdict, charts, heat map, tables.

    The page needs no network and opens from disk: the findings with links to their evidence, a typical step and the longest
    one, every rank over all steps, bubbles, stragglers, communication, kernels, host gaps, memory,
    clocks, and what was not recorded.

    \b
    Example:
      nsys-pp report node*/report*.sqlite -o report.html --trace run.pftrace
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a page cannot be printed; choose a file with `-o`")
    with show_progress() as progress:
        written = nsys_pp.report(reports, output, trace=trace, force=force, progress=progress, **options)
    log_skipped(written.skipped)
    log_notes(written.notes)
    if trace is not None and "://" not in trace and not Path(trace).is_file():
        log_note(f"no such file: `{trace}`; `nsys-pp merge REPORT... -o {trace}` writes it")
    size = format_bytes(output.stat().st_size)
    log_output(
        f"Wrote {output} ({size}): {format_count(written.steps, 'step')} of {format_count(written.lanes, 'rank')}.",
        output,
    )
    log_verdict(written.verdict)
    exit_if_skipped(ctx, written.skipped, written.row_counts)
