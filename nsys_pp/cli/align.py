"""`nsys-pp align`: clocks of all machines on one time axis, with error bounds."""

from __future__ import annotations

import json
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import format_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SectionCommand


@click.command(cls=SectionCommand)
@format_option(["table", "json"], default="table", default_text="table")
@input_options
@clock_and_rank_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def align(ctx: click.Context, /, reports: tuple[str, ...], format: str, **options: Any) -> None:
    """Align the clocks of all machines, with error bounds.

    A collective ends on all its ranks at the same time, and a message ends after it began: these
    constraints align clocks to microseconds, where UTC is off by milliseconds. `merge` aligns
    clocks in the same way.

    \b
    Example:
      nsys-pp align node*/report*.sqlite
    """
    from nsys_pp.cli.screen import open_screen
    from nsys_pp.commands.align import CLOCK_TABLE
    from nsys_pp.frames.table import FilledTable
    from nsys_pp.output.tables.terminal import print_tables

    with show_progress() as progress:
        aligned = nsys_pp.align(reports, progress=progress, **options)
    if format == "json":
        click.echo(json.dumps(_describe_clocks(aligned), indent=2, ensure_ascii=False))
    else:
        frame = CLOCK_TABLE.build(aligned.clocks, aligned.labels)
        with open_screen() as console:
            print_tables([FilledTable(table=CLOCK_TABLE, frame=frame)], console=console)
    exit_if_skipped(ctx, aligned.skipped, aligned.row_counts)


def _describe_clocks(aligned: nsys_pp.AlignResult) -> list[dict[str, Any]]:
    """Return the clocks as plain types; the keys are stable."""
    return [
        {**row, "reports": [str(aligned.paths[index]) for index in row["reports"]]}
        for row in aligned.clocks.to_dicts()
    ]
