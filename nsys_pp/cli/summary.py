"""`nsys-pp summary`: tables of operators, kernels, copies, communication and idle time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import nsys_pp
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log_notes, record_verdict
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.identity import identity_options
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import STANDARD_OUTPUT, force_option, format_option, output_option
from nsys_pp.cli.options.projection import projection_options
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.tables import limit_option, table_option
from nsys_pp.cli.options.training import job_and_steps_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import SELECTION, SectionCommand, option
from nsys_pp.cli.table_output import check_sort, list_outputs, output_tables, settle_format
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.choices import SUMMARY_GROUPS
from nsys_pp.tables.registry import TABLES as TRAINING_TABLES
from nsys_pp.tables.registry import VERDICT
from nsys_pp.tables.summary.registry import PADDLE_LAYOUTS, PADDLE_TABLES, TABLES

_SHOWN = (
    *("overview", "device", "model", "distribution", "operators", "families", "kernels"),
    *("copies", "communication", "idle", "launches", "memory"),
)
_TEXT_LIMIT = 15


@click.command(cls=SectionCommand)
@output_option("-", default_text="standard output")
@format_option(
    ["table", "markdown", "csv", "json", "parquet", "sqlite"],
    default_text="inferred from the file extension; table on standard output",
)
@force_option
@input_options
@table_option(
    TABLES,
    default_text="on standard output all but ranges, base_kernels, cuda, os and sync; else all",
)
@option(
    "--by",
    section=SELECTION,
    type=click.Choice([*SUMMARY_GROUPS]),
    default="run",
    help="Groups of rows; device: each GPU of each machine.",
)
@option(
    "--sort",
    section=SELECTION,
    metavar="COLUMN",
    help="Sort tables by this column: total, mean, median, max, min, count, name, bytes, or another, with `gpu_` or"
    " `host_` where there are two. Minima and names ascend. Paddle's names (CPUTotal, GPUMin) are accepted.",
    default_text="the order of each table",
)
@limit_option(default_text=f"{_TEXT_LIMIT} in tables and Markdown; all rows in other formats")
@option(
    "--unit",
    section=SELECTION,
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="Unit of all times.",
    default_text="readable units in tables; ns in data files",
)
@option(
    "--paddle-compat",
    section=SELECTION,
    is_flag=True,
    help="Show the tables of Paddle's Profiler in its layout, and include the CPU time of communication, as there.",
)
@job_and_steps_options
@projection_options
@identity_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def summary(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    by: str,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    output: Path,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Summarise time by operator, kernel, copy, and idle cause.

    The first lines are the findings of `nsys-pp pipeline`. Reports of many ranks are added up, or grouped with `--by`. Parts (`nsys-pp extract`) are read
    without their events. `-o` writes a .json, .md or .sqlite file with all tables, a .csv or .parquet
    file with one table, or a folder with a file per table.

    \b
    Examples:
      nsys-pp summary report.sqlite
      nsys-pp summary node*/report*.sqlite --table kernels --by rank -o kernels.csv
    """
    from nsys_pp.frames.table import fill_tables
    from nsys_pp.output.files import check_output
    from nsys_pp.run.batch import list_existing_inputs

    format = settle_format(str(output), format, names, option="--table")
    is_text = format in ("table", "markdown")
    is_paddle = options["paddle_compat"]
    shown = tuple(PADDLE_LAYOUTS) if is_paddle else _SHOWN
    with_verdict = names is None and not is_paddle
    names = names or (shown if is_text and output == STANDARD_OUTPUT else tuple(TABLES))
    registry = PADDLE_TABLES if is_paddle else TABLES
    tables = {name: registry[name] for name in names}
    check_sort(sort, tables)
    for name in ("ops", "scope"):  # None: those of the parts
        if ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            options[name] = None
    with show_progress() as progress:
        for path in list_outputs(str(output), format, (*([VERDICT] if with_verdict else []), *names)):
            check_output(path, force=force, inputs=list_existing_inputs(reports))
        summarised = nsys_pp.summarise(
            reports,
            tables=names,
            by=by,
            progress=progress,
            **options,
        )
    missing = [f"no table {name}: {reason}" for name, reason in summarised.absent.items()]
    if not (summarised.tables or is_text):
        raise MissingDataError(missing[0], "`nsys-pp info` lists what was recorded")
    filled = fill_tables(tables, summarised.tables, summarised.absent)
    if with_verdict:
        filled = [*fill_tables(TRAINING_TABLES, {VERDICT: summarised.verdict_table()}), *filled]
        record_verdict(summarised.verdict)
    log_skipped(summarised.skipped)
    output_tables(
        filled,
        output=output,
        format=format,
        limit=(_TEXT_LIMIT if is_text else 0) if limit is None else limit,
        sort=sort,
        unit=unit,
        force=force,
    )
    if not is_text:
        log_notes(missing)
    log_notes(summarised.notes)
    exit_if_skipped(ctx, summarised.skipped, summarised.row_counts)
