"""`nsys-pp compare`: changes between two runs, with gates for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log, log_notes, log_output, record_rows, record_verdict
from nsys_pp.cli.options.batch import keep_going_option, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.inputs import nsys_option
from nsys_pp.cli.options.output import (
    STANDARD_OUTPUT,
    force_option,
    format_option,
    output_option,
    title_option,
)
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.tables import limit_option
from nsys_pp.cli.options.training import training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, SELECTION, SectionArgument, SectionCommand, option
from nsys_pp.cli.table_output import output_tables
from nsys_pp.frames.choices import ASPECTS
from nsys_pp.units import format_bytes

if TYPE_CHECKING:
    from nsys_pp.commands.compare import CompareResult

GATE_FAILED = 4
_PAGES = (".html", ".htm")


@click.command(cls=SectionCommand)
@click.argument(
    "a",
    cls=SectionArgument,
    section=OUTPUT,
    text="The run to compare with: a report, a part, a folder of them, or a quoted pattern, with its steps as in"
    " runs/7:10:14.",
)
@click.argument(
    "b",
    cls=SectionArgument,
    section=OUTPUT,
    text="The run to judge, likewise; or other steps of the same run.",
)
@output_option(default_text="tables on standard output")
@force_option
@title_option
@format_option(["table", "json", "markdown"], default="table", default_text="table")
@nsys_option
@option(
    "--steps-a",
    section=SELECTION,
    metavar="A:B",
    help="Steps of run A, for paths that end like steps; `--steps` applies to both runs.",
)
@option("--steps-b", section=SELECTION, metavar="A:B", help="Steps of run B.")
@option(
    "--fail-on",
    "gates",
    section=SELECTION,
    multiple=True,
    metavar="GATE",
    help="Exit with status 4 if B is worse by more than this: 'bubble>5%', 'step>20ms', 'stage 2 forward>3%',"
    " 'bubble_b>20%' (of B itself). Repeatable.",
)
@option(
    "--allow-different",
    section=SELECTION,
    multiple=True,
    type=click.Choice([*ASPECTS]),
    help="Compare runs that differ in this, although times depend on it, without the tables that it affects."
    " Repeatable.",
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
    output: Path | None,
    format: str,
    limit: int,
    force: bool,
    **options: Any,
) -> None:
    """Compare two runs: steps, bubbles, stages, ranks, jobs, kernels.

    The output begins with at most five findings and with what the runs differ in. The steps of a run are its
    samples: a difference within their noise counts as no change. Runs that cannot be compared are refused. The exit
    status is 4 if a gate of `--fail-on` fails.

    \b
    Examples:
      nsys-pp compare before/ after/ --fail-on 'bubble>5%' --fail-on 'step>3%'
      nsys-pp compare run/:10:14 run/:20:24 -o change.html
    """
    page = None if output in (None, STANDARD_OUTPUT) else output
    if page is not None and page.suffix not in _PAGES:
        raise click.UsageError(
            f"the page is HTML, so `{page}` must end in .html; `--format json` and `markdown` print the tables"
        )
    with show_progress() as progress:
        compared = nsys_pp.compare(a, b, output=page, force=force, progress=progress, **options)
    record_verdict(compared.verdict)
    log_skipped(compared.skipped)
    _print(compared, format=format, limit=limit)
    log_notes(compared.notes)
    if page is not None:
        log_output(f"Wrote {page} ({format_bytes(page.stat().st_size)})", page)
    for failure in compared.failures:
        log(failure, event="gate failed", level="error", prefix="failed: ")
    if compared.failures:
        record_rows(compared.row_counts)
        ctx.exit(GATE_FAILED)
    exit_if_skipped(ctx, compared.skipped, compared.row_counts)


def _print(compared: CompareResult, *, format: str, limit: int) -> None:
    from nsys_pp.output.tables.output import format_tables

    tables = compared.fill_tables()
    if format == "json":
        content = {
            "runs": dict(zip("ab", compared.names, strict=True)),
            "verdict": compared.verdict.to_dicts(),
            "comparability": compared.comparability,
            "tables": json.loads(format_tables(tables[1:], format="json")),
            "failures": compared.failures,
            "notes": compared.notes,
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        output_tables(tables, output=STANDARD_OUTPUT, format=format, limit=limit if format == "table" else 0)
