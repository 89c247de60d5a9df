"""`nsys-pp extract`: one report as a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.drawing_options import detail_option, flows_option
from nsys_pp.cli.options import (
    end_with_skipped,
    force_option,
    input_options,
    keep_going_option,
    projection_options,
)
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.record import describe_outputs, say, say_wrote
from nsys_pp.cli.result import result_options
from nsys_pp.cli.training_options import job_options
from nsys_pp.cli.work_options import take_work, work_options
from nsys_pp.units import format_bytes


@click.command()
@input_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The part to write, or a folder for parts named like their reports (made for several); by"
    " default the folder where you are.",
)
@detail_option
@flows_option
@projection_options
@job_options
@work_options
@keep_going_option("extracted")
@force_option
@result_options
@click.pass_context
def extract(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    output: Path | None,
    detail: api.Detail,
    flows: bool,
    **options: Any,
) -> None:
    """Make a part of each report: all that it adds to a trace, ready made.

    `nsys-pp merge` takes parts like reports, at once and however often; so each machine can make
    its own, and only these have to travel. A part that is there already, whole and up to date, is
    left as it is: what was interrupted goes on where it ended.

    \b
    Example:
      nsys-pp extract report.sqlite -o report.nspart
    """
    if str(output) == "-":
        raise click.UsageError("a part is not printed; name a file with `-o`")
    if (
        output is not None
        and output.suffix in (*api.FORMATS, ".nsys-rep")
        and not _is_report(output, reports)
    ):
        raise click.UsageError(f"`{output}` is a table's or a report's name; a part is `.nspart`")
    work = take_work(options)
    with show_progress() as progress:
        extracted, skipped = api.extract_all(
            reports,
            output,
            detail="cpu" if flows else detail,
            flows=flows,
            work=work,
            progress=progress,
            **options,
        )
    for one in extracted:
        size = format_bytes(one.output.stat().st_size)
        slices = f"{one.slices:,} slice" + "s" * (one.slices != 1)
        slices += f" and {one.jobs:,} job" + "s" * (one.jobs != 1) if one.jobs else ""
        gpus = f"{one.gpus:,} GPU" + "s" * (one.gpus != 1)
        if one.is_new:
            say_wrote(f"Wrote {one.output} ({size}): {slices} on {gpus}, from {one.report}.", one.output)
        else:
            said = f"already there: {one.output} ({size}), from {one.report}"
            say(said, event="already there", facts={"outputs": describe_outputs([one.output])})
    end_with_skipped(ctx, skipped)


def _is_report(output: Path, reports: tuple[str, ...]) -> bool:
    """Say whether the output is a report to read, which is refused in other words."""
    return str(output) in reports
