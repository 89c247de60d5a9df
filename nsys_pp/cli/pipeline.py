"""`nsys-pp pipeline`: steps, stages, jobs and bubbles of a pipeline, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.export_output import check_devices, check_export, write_export
from nsys_pp.cli.inputs import exit_if_skipped, log_skipped
from nsys_pp.cli.log import log_notes, record_verdict
from nsys_pp.cli.options.batch import keep_going_option, wait_options, work_options
from nsys_pp.cli.options.clock import clock_and_rank_options
from nsys_pp.cli.options.drawing import device_option
from nsys_pp.cli.options.inputs import input_options
from nsys_pp.cli.options.output import force_option, format_option, output_option
from nsys_pp.cli.options.result import result_options
from nsys_pp.cli.options.tables import limit_option, table_option
from nsys_pp.cli.options.training import flops_options, training_options
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.sections import OUTPUT, TRAINING, SectionCommand, option
from nsys_pp.cli.table_output import list_outputs, output_tables, settle_format
from nsys_pp.output.exporter_registry import EXPORTERS
from nsys_pp.tables.registry import TABLES
from nsys_pp.tables.training.registry import REQUESTED_TABLES, WORK_TABLES

_SHOWN = ("verdict", "schedule", "steps", "stages", "kinds", "families", "stragglers", "critical")
_OF_TABLES = {  # options of tables, by the names of their values
    "names": "--table",
    "devices": "--device",
    "flops_per_step": "--flops-per-step",
    "model": "--model",
}
_SHOWN_WITHOUT_JOBS = ("verdict", "steps", "lanes", "families", "gaps")
_SHOWN_OF_INFERENCE = ("verdict", "iterations", "iteration_families", "lanes", "kinds", "gaps")


@click.command(cls=SectionCommand)
@output_option("-", default_text="standard output")
@format_option(
    ["table", "markdown", "csv", "json", "parquet", "sqlite", *EXPORTERS],
    default_text="inferred from the file extension; table on standard output",
)
@force_option
@input_options
@option(
    "--steptask",
    section=OUTPUT,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write copies of the reports to this folder, each with a table StepTaskInfo of its jobs, as in"
    " msprof-analyze and MindStudio Insight.",
)
@option(
    "--in-place", section=OUTPUT, is_flag=True, help="Add the table StepTaskInfo to the reports themselves."
)
@option(
    "--explain-jobs",
    section=TRAINING,
    is_flag=True,
    help="Show the names of ranges instead: the rule that reads each as a job or a step, and unread names by GPU time.",
)
@table_option(
    TABLES,
    requested=REQUESTED_TABLES,
    default_text=f"{', '.join(_SHOWN)} on standard output ({', '.join(_SHOWN_WITHOUT_JOBS)} without jobs;"
    f" {', '.join(_SHOWN_OF_INFERENCE)} of inference), else all",
)
@limit_option(40, default_text="40 in tables; all rows in other formats")
@device_option
@flops_options
@training_options
@clock_and_rank_options
@work_options
@wait_options
@keep_going_option
@result_options
@click.pass_context
def pipeline(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    output: Path,
    format: str | None,
    devices: frozenset[int] | None,
    steptask: Path | None,
    in_place: bool,
    explain_jobs: bool,
    limit: int,
    flops_per_step: float | None,
    model: str | None,
    data_type: str,
    **options: Any,
) -> None:
    """Show steps, stages, jobs, and the causes of bubbles.

    `-o` writes a .json, .md or .sqlite file with all tables, a .csv or .parquet file with one table,
    or a folder with a file per table. The formats html, svg and png are those of `nsys-pp chart`; `--format paddle`
    writes the two files of Paddle's timeline tool to the folder of `-o`, for all GPUs or those of `--device`;
    `--format steptask` is short for `--steptask`.

    \b
    Examples:
      nsys-pp pipeline node*/report*.sqlite
      nsys-pp pipeline node*/report*.sqlite --table stages -o stages.csv
    """
    from msgspec.structs import replace as struct_replace

    from nsys_pp.frames.table import fill_tables
    from nsys_pp.output.files import check_output
    from nsys_pp.run.batch import list_existing_inputs

    if explain_jobs:
        others = {"steptask": "--steptask", "in_place": "--in-place"}
        _refuse_given(ctx, {**_OF_TABLES, **others}, "`--explain-jobs` shows names of ranges only")
        _explain_jobs(ctx, reports, output, format, limit, options)
        return
    if steptask is not None or in_place:
        option = "--steptask" if steptask is not None else "--in-place"
        _refuse_table_options(ctx, option)
        _refuse_batch_options(steptask, in_place, options)
        write_export(ctx, reports, steptask, format="steptask", **options)
        return
    check_devices(format, devices)
    if format is not None and format in EXPORTERS:
        if flops_per_step or model:
            raise click.UsageError(
                f"`--format {format}` has no table of utilisation; omit `--flops-per-step` and `--model`"
            )
        check_export(format, output, names)
        write_export(ctx, reports, output, format=format, devices=devices, **options)
        return
    added = tuple(WORK_TABLES) if flops_per_step or model else ()
    format = settle_format(str(output), format, names and (*names, *added), option="--table")
    force = options.pop("force")
    with show_progress() as progress:
        for path in list_outputs(str(output), format, (*(names or TABLES), *added)):
            check_output(path, force=force, inputs=list_existing_inputs(reports))
        options |= {"flops_per_step": flops_per_step, "model": model, "data_type": data_type}
        result = nsys_pp.pipeline(reports, progress=progress, **options)
    shown: tuple[str, ...] = _SHOWN_WITHOUT_JOBS
    if len(result.training.jobs):
        shown = _SHOWN
    if len(result.training.batches):
        shown = _SHOWN_OF_INFERENCE
    names = (*(names or (shown if format == "table" else tuple(TABLES))), *added)
    frames = result.tables(names)
    chosen: dict[str, Any] = {
        name: next(tables[name] for tables in (TABLES, REQUESTED_TABLES, WORK_TABLES) if name in tables)
        for name in names
    }
    for name, frame in frames.items():
        if name in REQUESTED_TABLES and frame.is_empty():
            chosen[name] = struct_replace(chosen[name], empty=result.explain_no_rows(name))
    tables = fill_tables(chosen, frames)
    log_skipped(result.skipped)
    output_tables(tables, output=output, format=format, limit=limit if format == "table" else 0, force=force)
    record_verdict(result.verdict)
    log_notes([*result.training.notes, *result.metric_notes(), *result.work_notes()])
    exit_if_skipped(ctx, result.skipped, result.row_counts)


def _explain_jobs(
    ctx: click.Context,
    reports: tuple[str, ...],
    output: Path,
    format: str | None,
    limit: int,
    options: dict[str, Any],
) -> None:
    """Show or write the names of ranges with their rules."""
    from nsys_pp.commands.explain_jobs import NAME_TABLE
    from nsys_pp.frames.table import FilledTable
    from nsys_pp.output.files import check_output
    from nsys_pp.run.batch import list_existing_inputs

    format = settle_format(str(output), format, (NAME_TABLE.name,), option="--table")
    for path in list_outputs(str(output), format, (NAME_TABLE.name,)):
        check_output(path, force=options["force"], inputs=list_existing_inputs(reports, with_parts=False))
    chosen = {key: value for key, value in options.items() if key in nsys_pp.JobOptions.__annotations__}
    with show_progress() as progress:
        result = nsys_pp.explain_jobs(reports, progress=progress, **chosen)
    names = FilledTable(table=NAME_TABLE, frame=result.names)
    limit = limit if format == "table" else 0
    output_tables([names], output=output, format=format, limit=limit, force=options["force"])
    exit_if_skipped(ctx, result.skipped, result.row_counts)


def _refuse_table_options(ctx: click.Context, option: str) -> None:
    """Refuse options of table output together with an option that writes no tables."""
    outputs = {"output": "-o", "format": "--format", "as_json": "--json"}
    _refuse_given(ctx, {**_OF_TABLES, **outputs}, f"`{option}` writes no other tables")


def _refuse_given(ctx: click.Context, options: Mapping[str, str], reason: str) -> None:
    """Refuse options by the names of their values, if they are given."""
    for name, given in options.items():
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"{reason}; omit `{given}`")


def _refuse_batch_options(folder: Path | None, in_place: bool, options: dict[str, Any]) -> None:
    """Refuse options that contradict copies of reports, or tables in place."""
    if folder is not None and in_place:
        raise click.UsageError("`--steptask` and `--in-place` exclude each other; omit one of them")
    if options["keep_going"]:
        raise click.UsageError("`--keep-going` is not available with `--steptask` and `--in-place`")
