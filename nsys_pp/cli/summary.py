"""`nsys-pp summary`: where the time went, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nsys_pp import commands as api
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import (
    end_with_skipped,
    force_option,
    input_options,
    keep_going_option,
    projection_options,
    tell_notes,
)
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.result import result_options
from nsys_pp.cli.summary_output import SummaryOutput, check_sort, write_summary
from nsys_pp.cli.table_output import TableNames, list_outputs, output_option, settle_format
from nsys_pp.cli.training_options import job_options, steps_option, take_training
from nsys_pp.cli.work_options import take_work, wait_for_inputs, wait_options, work_options

_SHOWN = (
    *("overview", "device", "model", "distribution", "operators", "kernels", "copies", "communication"),
    *("idle", "launches", "memory"),
)
_MOST_ROWS = 15


@click.command()
@input_options
@click.option(
    "--tables",
    "names",
    type=TableNames(api.SUMMARY_TABLES),
    help=f"Which tables: {', '.join(api.SUMMARY_TABLES)}, or `all`. By default {', '.join(_SHOWN)} are printed,"
    " and all are written.",
)
@click.option(
    "--by",
    type=click.Choice([*api.SUMMARY_GROUPS]),
    default="run",
    show_default=True,
    help="What tables are split by; device: each GPU of each machine.",
)
@steps_option
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Where a table has it: total, mean, median, max, min, count, name, bytes, or any other column; with `gpu_` or"
    " `host_` where there are two. Minima and names ascend. Paddle's words are understood: `CPUTotal`, `GPUMin`.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    help=f"Most rows of each list, or of each group of `--by`; 0: all. If not given, {_MOST_ROWS} in tables and"
    " Markdown, and all in other formats. Totals are always of all rows.",
)
@click.option(
    "--unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="Of all times; if not given, what is easy to read, and nanoseconds in files of data.",
)
@click.option(
    "--paddle-compat",
    is_flag=True,
    help="Count communication as Paddle does: its time on the CPU, too.",
)
@output_option
@click.option(
    "--format",
    "format",
    type=click.Choice(["table", "markdown", "csv", "json", "parquet", "sqlite"]),
    help="Whatever the ending of the output says; a table when printed.",
)
@job_options
@projection_options
@identity_options
@work_options
@wait_options
@keep_going_option("read")
@force_option
@result_options
@click.pass_context
def summary(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    by: str,
    sort: str | None,
    top: int | None,
    unit: str | None,
    output: str,
    format: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Tell where the time went: operators, kernels, copies, communication, idle time, and what the CPU did.

    Reports of many ranks are added up, or told apart by `--by`. Parts (`nsys-pp extract`) will do instead of reports.

    \b
    Examples:
      nsys-pp summary report.sqlite
      nsys-pp summary node*/report*.sqlite --tables kernels --by rank -o kernels.csv
    """
    format = settle_format(output, format, names, option="--tables")
    names = names or (
        _SHOWN if format in ("table", "markdown") and output == "-" else tuple(api.SUMMARY_TABLES)
    )
    check_sort(sort, names)
    work = take_work(options)
    for option in ("ops", "scope"):  # what parts were made with, where nothing is asked for
        if ctx.get_parameter_source(option) is ParameterSource.DEFAULT:
            options[option] = None
    training = take_training(options)
    overrides = api.Overrides(layout=options.pop("layout"), rank_from=options.pop("rank_from"))
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress)
        for path in list_outputs(output, format, names):
            api.check_output(path, force=force, inputs=api.find_reports(inputs, with_parts=True))
        found = api.summarise(
            inputs,
            tables=names,
            by=by,
            training=training,
            overrides=overrides,
            work=work,
            progress=progress,
            **options,
        )
    if top is None:
        top = _MOST_ROWS if format in ("table", "markdown") else 0
    how = SummaryOutput(
        names=names,
        by=by,
        sort=sort,
        top=top,
        unit=unit,
        paddle_compat=options["paddle_compat"],
    )
    write_summary(found, how, output=None if output == "-" else Path(output), format=format, force=force)
    tell_notes(found.notes)
    end_with_skipped(ctx, [*incomplete, *found.skipped])
