"""`nsys-pp pipeline`: how a pipeline really ran, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nsys_pp import commands as api
from nsys_pp.cli.clock_options import clock_options, take_told
from nsys_pp.cli.identity_options import identity_options
from nsys_pp.cli.options import (
    Numbers,
    end_with_skipped,
    force_option,
    input_options,
    keep_going_option,
    tell_notes,
)
from nsys_pp.cli.pipeline_table import VIEWS, arrange, print_tables
from nsys_pp.cli.progress import show_progress
from nsys_pp.cli.record import say_wrote
from nsys_pp.cli.result import result_options
from nsys_pp.cli.table_output import TableNames, list_outputs, output_option, settle_format
from nsys_pp.cli.training_options import take_training, training_options
from nsys_pp.cli.work_options import take_work, wait_for_inputs, wait_options, work_options

_SHOWN = ("schedule", "steps", "stages", "kinds", "stragglers", "critical")


@click.command()
@input_options
@click.option(
    "--table",
    "names",
    type=TableNames(api.PIPELINE_TABLES),
    help="Which tables: schedule, steps, stages, lanes, kinds, stragglers, links, critical, critical_path, or"
    " `all`. By default those that fit a screen are printed, and all are written.",
)
@output_option
@click.option(
    "--format",
    "format",
    type=click.Choice(["table", "csv", "json", "parquet", "markdown", "sqlite", "paddle"]),
    help="Whatever the ending of the output says; a table when printed. paddle: the two files of Paddle's"
    " timeline tool, in the folder `-o`.",
)
@click.option(
    "--device",
    "devices",
    type=Numbers(),
    help="Only these GPUs, by their number on their machine; with `--format paddle`.",
)
@click.option(
    "--steptask",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write copies of the reports into this folder, each with a table `StepTaskInfo` of its jobs, as"
    " msprof-analyze and MindStudio Insight have it.",
)
@click.option("--in-place", is_flag=True, help="Write that table into the reports themselves.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Most rows of a table to print.",
)
@training_options
@clock_options
@identity_options
@work_options
@wait_options
@keep_going_option("read")
@force_option
@result_options
@click.pass_context
def pipeline(
    ctx: click.Context,
    /,
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    output: str,
    format: str | None,
    devices: frozenset[int] | None,
    steptask: Path | None,
    in_place: bool,
    limit: int,
    **options: Any,
) -> None:
    """Tell how a pipeline really ran: its steps, stages, jobs, and where the bubbles come from.

    \b
    Examples:
      nsys-pp pipeline node*/report*.sqlite
      nsys-pp pipeline node*/report*.sqlite --table stages -o stages.csv
    """
    options |= {"training": take_training(options), "overrides": take_told(options)}
    options["work"] = take_work(options)
    if steptask is not None or in_place:
        option = "--steptask" if steptask is not None else "--in-place"
        _refuse_tables(ctx, option)
        _write_step_tasks(reports, steptask, in_place, options)
        return
    if devices is not None and format != "paddle":
        raise click.UsageError("`--device` is for `--format paddle`")
    if format == "paddle":
        _write_paddle(ctx, reports, output, names, devices, options)
        return
    format = settle_format(output, format, names, option="--table")
    force = options.pop("force")
    names = names or (_SHOWN if format == "table" else tuple(api.PIPELINE_TABLES))
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress)
        for path in list_outputs(output, format, names):
            api.check_output(path, force=force, inputs=api.find_reports(inputs, with_parts=True))
        found = api.pipeline(inputs, progress=progress, **options)
    frames = found.tables(names)
    if format == "markdown":  # is read by people, as what a terminal shows
        frames = {name: arrange(frame, VIEWS[name]) for name, frame in frames.items()}
    if output != "-":
        written = api.write_tables(
            frames, Path(output), format=format, titles=api.PIPELINE_TABLES, force=force
        )
        for path in written:
            say_wrote(f"Wrote {path}", path)
    elif format == "table":
        print_tables(frames, api.PIPELINE_TABLES, limit=limit)
    elif format == "csv":
        click.echo(api.format_table(*frames.values(), format="csv"), nl=False)
    else:
        click.echo(api.format_tables(frames, format=format, titles=api.PIPELINE_TABLES), nl=False)
    tell_notes(found.training.notes)
    end_with_skipped(ctx, [*incomplete, *found.skipped])


def _refuse_tables(ctx: click.Context, option: str) -> None:
    """Refuse what says how tables are written where none is."""
    for name, word in (
        ("names", "--table"),
        ("output", "-o"),
        ("format", "--format"),
        ("devices", "--device"),
    ):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"`{option}` writes no other tables: leave out `{word}`")


def _write_step_tasks(
    reports: tuple[str, ...], folder: Path | None, in_place: bool, options: dict[str, Any]
) -> None:
    if folder is not None and in_place:
        raise click.UsageError("`--steptask FOLDER` writes copies and `--in-place` does not: leave out one")
    if options["keep_going"]:
        raise click.UsageError("`--keep-going` is not for `--steptask` and `--in-place`")
    with show_progress() as progress:
        inputs, _ = wait_for_inputs(reports, options, progress)
        del options["keep_going"]
        written = api.write_step_tasks_of(inputs, folder, progress=progress, **options)
    for report, path, rows in written:
        source = "" if path == report else f", a copy of {report}"
        say_wrote(f"Wrote {rows:,} rows of StepTaskInfo into {path}{source}", path)


def _write_paddle(
    ctx: click.Context,
    reports: tuple[str, ...],
    output: str,
    names: tuple[str, ...] | None,
    devices: frozenset[int] | None,
    options: dict[str, Any],
) -> None:
    if output == "-":
        raise click.UsageError("`--format paddle` writes two files: name a folder with `-o`")
    if names is not None:
        raise click.UsageError("`--format paddle` writes no tables: leave out `--table`")
    with show_progress() as progress:
        inputs, incomplete = wait_for_inputs(reports, options, progress)
        written = api.write_paddle_of(inputs, Path(output), devices=devices, progress=progress, **options)
    tell_notes(written.notes)
    say_wrote(
        f"Wrote {written.chrome} and {written.perfetto}: {written.jobs:,} jobs. Look at the latter: open"
        " https://ui.perfetto.dev and drop the file there (it stays on your machine).",
        written.chrome,
        written.perfetto,
    )
    end_with_skipped(ctx, [*incomplete, *written.skipped])
