"""`nsys-pp compare`: changes between two runs, with gates for scripts."""

from __future__ import annotations

import json
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log, log_notes, record_rows
from nsys_pp.cli.options.batch import keep_going_option, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import nsys_option
from nsys_pp.cli.options.output import STANDARD_OUTPUT, format_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.tables import limit_option
from nsys_pp.cli.options.training import training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, SELECTION, SectionArgument, SectionCommand, option
from nsys_pp.cli.table_output import output_tables

GATE_FAILED = 4


@click.command(cls=SectionCommand)
@click.argument(
    "a",
    cls=SectionArgument,
    section=OUTPUT,
    text="The run to compare with: a report, a part, a folder of them, or a quoted pattern.",
)
@click.argument("b", cls=SectionArgument, section=OUTPUT, text="The run to judge, likewise.")
@format_option(["table", "json", "markdown"], default="table", default_text="table")
@nsys_option
@option(
    "--fail-on",
    "gates",
    section=SELECTION,
    multiple=True,
    metavar="GATE",
    help="Exit with status 4 if B is worse by more than this: 'bubble>5%', 'step>20ms', 'stage 2 forward>3%',"
    " 'bubble_b>20%' (of B itself). Repeatable.",
)
@limit_option(20, default_text="20 in tables; all rows in other formats")
@training_options
@clock_and_rank_options
@work_options
@keep_going_option
@result_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    a: str,
    b: str,
    gates: tuple[str, ...],
    format: str,
    limit: int,
    **options: Any,
) -> None:
    """Compare two runs: steps, bubbles, stages, jobs, kernels.

    The steps of a run are its samples: a difference within their noise counts as no change. The exit
    status is 4 if a gate of `--fail-on` fails.

    \b
    Example:
      nsys-pp compare before/ after/ --fail-on 'bubble>5%' --fail-on 'step>3%'
    """
    from nsys_pp.commands.compare import COMPARE_TABLES
    from nsys_pp.frames.table import fill_tables
    from nsys_pp.write.tables.output import format_tables

    with show_progress() as progress:
        compared = nsys_pp.compare(a, b, gates=gates, progress=progress, **options)
    tables = fill_tables(COMPARE_TABLES, compared.tables)
    if format == "json":
        frames = json.loads(format_tables(tables, format="json"))
        content = {"tables": frames, "failures": compared.failures, "notes": compared.notes}
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        output_tables(tables, output=STANDARD_OUTPUT, format=format, limit=limit if format == "table" else 0)
    log_notes(compared.notes)
    for failure in compared.failures:
        log(failure, event="gate failed", level="error", prefix="failed: ")
    if compared.failures:
        log_skipped(compared.skipped)
        record_rows(compared.row_counts)
        ctx.exit(GATE_FAILED)
    exit_if_skipped(ctx, compared.skipped, compared.row_counts)
