"""`nsys-pp pipeline`: steps, stages, jobs and bubbles, as tables or in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import nsys_pp
from nsys_pp.cli.command import STANDARD_OUTPUT, command, end_with, parse_table_names, run_with_progress
from nsys_pp.cli.log import log_notes, log_output, log_skipped, record_verdict
from nsys_pp.cli.tables import TABLE_FORMATS, check_outputs, output_tables, settle_format
from nsys_pp.output.formats import EXPORTERS
from nsys_pp.tables.registry import REQUESTED_TABLES, TABLES, WORK_TABLES
from nsys_pp.units import format_count

_SHOWN = ("verdict", "schedule", "steps", "stages", "kinds", "families", "stragglers", "critical")
_SHOWN_WITHOUT_JOBS = ("verdict", "steps", "lanes", "families", "gaps")
_SHOWN_OF_INFERENCE = ("verdict", "iterations", "iteration_families", "lanes", "kinds", "gaps")


@command(
    output={"default": STANDARD_OUTPUT, "default_text": "standard output"},
    format=TABLE_FORMATS | {"choices": (*TABLE_FORMATS["choices"], *EXPORTERS)},
    names={
        **parse_table_names(TABLES, REQUESTED_TABLES),
        "default_text": f"{', '.join(_SHOWN)} on standard output"
        f" ({', '.join(_SHOWN_WITHOUT_JOBS)} without jobs;"
        f" {', '.join(_SHOWN_OF_INFERENCE)} of inference), else all",
    },
    limit={"default": 40, "default_text": "40 in tables; all rows in other formats"},
)
def pipeline(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    output: Path,
    format: str | None,
    steptask: Path | None,
    in_place: bool,
    explain_jobs: bool,
    limit: int,
    **options: Any,
) -> None:
    """Show steps, stages, jobs, and the causes of bubbles.

    `-o` writes a .json, .md or .sqlite file with all tables, a .csv or .parquet file with one table,
    or a folder with a file per table. The formats html, svg and png are those of `nsys-pp chart`;
    `--format paddle` writes the two files of Paddle's timeline tool to the folder of `-o`, for all GPUs or
    those of `--device`; `--format steptask` is short for `--steptask`.

    \b
    Examples:
      nsys-pp pipeline node*/report*.sqlite
      nsys-pp pipeline node*/report*.sqlite --table stages -o stages.csv
    """
    work = {name: options.pop(name) for name in ("flops_per_step", "model")}
    has_work = any(work.values())
    given = {
        "--table": names is not None,
        "--device": options["devices"] is not None,
        "--flops-per-step": work["flops_per_step"] is not None,
        "--model": work["model"] is not None,
    }
    if explain_jobs:
        given |= {"--steptask": steptask is not None, "--in-place": in_place}
        _refuse(given, "`--explain-jobs` shows names of ranges only")
        _explain_jobs(reports, output, format, limit, options)
    elif steptask is not None or in_place:
        given |= {"-o": output != STANDARD_OUTPUT, "--format": format is not None}
        _refuse(given, f"`{'--in-place' if steptask is None else '--steptask'}` writes no other tables")
        if steptask is not None and in_place:
            raise click.UsageError("`--steptask` and `--in-place` exclude each other; omit one of them")
        if options["keep_going"]:
            raise click.UsageError("`--keep-going` is not available with `--steptask` and `--in-place`")
        _export(reports, steptask, "steptask", options)
    elif format is not None and format in EXPORTERS:
        _check_devices(format, options["devices"])
        if has_work:
            raise click.UsageError(
                f"`--format {format}` has no table of utilisation; omit `--flops-per-step` and `--model`"
            )
        if output == STANDARD_OUTPUT:
            target = "folder" if EXPORTERS[format].is_folder else "file"
            raise click.UsageError(f"`--format {format}` is not printed; choose a {target} with `-o`")
        if names is not None:
            raise click.UsageError(f"`--format {format}` writes no tables; omit `--table`")
        _export(reports, output, format, options)
    else:
        _check_devices(format, options.pop("devices"))
        _show(
            reports, names, tuple(WORK_TABLES) if has_work else (), output, format, limit, {**options, **work}
        )


def _show(
    reports: tuple[str, ...],
    names: tuple[str, ...] | None,
    added: tuple[str, ...],
    output: Path,
    format: str | None,
    limit: int,
    options: dict[str, Any],
) -> None:
    """Show or write tables; those of `added` in any case."""
    from msgspec.structs import replace

    from nsys_pp.frames.table import fill_tables

    format = settle_format(output, format, names and (*names, *added), option="--table")
    force = options.pop("force")
    check_outputs(output, format, (*(names or TABLES), *added), reports, force=force)
    result = run_with_progress(nsys_pp.pipeline, reports, **options)
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
            chosen[name] = replace(chosen[name], empty=result.explain_no_rows(name))
    log_skipped(result.skipped)
    limit = limit if format == "table" else 0
    output_tables(fill_tables(chosen, frames), output=output, format=format, limit=limit, force=force)
    record_verdict(result.verdict)
    log_notes([*result.training.notes, *result.metric_notes(), *result.work_notes()])
    end_with(result)


def _explain_jobs(
    reports: tuple[str, ...], output: Path, format: str | None, limit: int, options: dict[str, Any]
) -> None:
    """Show or write the names of ranges with their rules."""
    from nsys_pp.commands.pipeline import NAME_TABLE
    from nsys_pp.frames.table import FilledTable

    force = options["force"]
    format = settle_format(output, format, (NAME_TABLE.name,), option="--table")
    check_outputs(output, format, (NAME_TABLE.name,), reports, force=force, with_parts=False)
    chosen = {name: value for name, value in options.items() if name in nsys_pp.JobOptions.__annotations__}
    result = run_with_progress(nsys_pp.explain_jobs, reports, **chosen)
    filled = FilledTable(table=NAME_TABLE, frame=result.names)
    limit = limit if format == "table" else 0
    output_tables([filled], output=output, format=format, limit=limit, force=force)
    end_with(result)


def _export(reports: tuple[str, ...], output: Path | None, format: str, options: dict[str, Any]) -> None:
    """Write the jobs in the format of another tool."""
    from nsys_pp.commands.pipeline import export_jobs

    del options["data_type"]
    result = run_with_progress(export_jobs, reports, output, format=format, **options)
    log_notes(result.notes)
    paths = [file.path for file in result.files if file.source is None]
    if paths and format == "steptask":
        more = " ..." if len(paths) > 1 else ""
        count = format_count(len(paths), "database")
        log_output(f"Wrote {count} with the StepTaskInfo of a rank: {paths[0]}{more}", *paths)
    elif paths:
        jobs = format_count(result.files[0].row_count, "job")
        log_output(f"Wrote {' and '.join(map(str, paths))}: {jobs}. {result.hint}".rstrip(), *paths)
    for file in result.files:
        if file.source is not None:
            source = "" if file.path == file.source else f", a copy of {file.source}"
            rows = format_count(file.row_count, "row")
            log_output(f"Wrote {rows} of StepTaskInfo to {file.path}{source}", file.path)
    end_with(result)


def _check_devices(format: str | None, devices: frozenset[int] | None) -> None:
    """Refuse `--device` with a format that does not select GPUs."""
    able = [name for name, exporter in EXPORTERS.items() if "devices" in exporter.options]
    if devices is not None and format not in able:
        raise click.UsageError("`--device` requires " + " or ".join(f"`--format {name}`" for name in able))


def _refuse(given: dict[str, bool], reason: str) -> None:
    for flag, is_given in given.items():
        if is_given:
            raise click.UsageError(f"{reason}; omit `{flag}`")
