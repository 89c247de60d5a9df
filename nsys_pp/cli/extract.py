"""`nsys-pp extract`: a part of each report, for `nsys-pp merge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.log import describe_outputs, log, log_output
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.drawing import detail_options, explicit_drawing
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, output_option
from nsys_pp.cli.options.projection import projection_options
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.training import job_options
from nsys_pp.cli.paths import cut_common_folder
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SectionCommand
from nsys_pp.output.tables.format_registry import SUFFIXES
from nsys_pp.units import format_bytes, format_count

if TYPE_CHECKING:
    from nsys_pp.run.parts import ExtractedPart


@click.command(cls=SectionCommand)
@output_option(default_text="parts in the current folder, named like their reports")
@force_option
@input_options
@detail_options
@projection_options
@job_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def extract(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path | None,
    **options: Any,
) -> None:
    """Write a part of each report, ready for merge and summary.

    A part (.nspart) holds everything a report contributes to a trace and to tables; `nsys-pp merge`
    and the other commands read parts like reports, but much faster. Each machine can extract its own
    reports, and only the parts have to be copied. Complete, up-to-date parts are kept: an interrupted
    extraction continues where it stopped.

    \b
    Examples:
      nsys-pp extract report.sqlite -o report.nspart
      nsys-pp extract node07/ -o parts/
    """
    if output == STANDARD_OUTPUT:
        raise click.UsageError("a part cannot be printed; choose a file with `-o`")
    is_other_file = output is not None and output.suffix in (*SUFFIXES, ".nsys-rep")
    if is_other_file and str(output) not in reports:  # a report as output is refused below
        raise click.UsageError(f"`{output}` has the extension of a table or a report; a part is `.nspart`")
    with show_progress() as progress:
        result = nsys_pp.extract(
            reports,
            output,
            progress=progress,
            **{**options, **explicit_drawing(ctx)},
        )
    names = cut_common_folder([part.report for part in result.parts])
    for part, name in zip(result.parts, names, strict=True):
        _log_part(part, name)
    exit_if_skipped(ctx, result.skipped, result.row_counts)


def _log_part(part: ExtractedPart, report: str) -> None:
    """Log a part, and the report that it was made of, in a few words."""
    size = format_bytes(part.output.stat().st_size)
    if not part.is_new:
        message = f"already there: {part.output} ({size}), from {report}"
        log(message, event="already there", facts={"outputs": describe_outputs([part.output])})
        return
    contents = format_count(part.slices, "slice")
    if part.jobs:
        contents += f" and {format_count(part.jobs, 'job')}"
    contents += f" on {format_count(part.gpus, 'GPU')}"
    log_output(f"Wrote {part.output} ({size}): {contents}, from {report}.", part.output)
