"""Output of `nsys-pp pipeline` in the formats of `nsys_pp.output.exporter_registry`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from nsys_pp.cli.inputs import exit_if_skipped
from nsys_pp.cli.log import log_notes, log_output
from nsys_pp.cli.options.output import STANDARD_OUTPUT
from nsys_pp.cli.progress import show_progress
from nsys_pp.output.exporter_registry import EXPORTERS
from nsys_pp.units import format_count


def check_export(format: str, output: Path, names: Sequence[str] | None) -> None:
    """Refuse options that contradict an export."""
    if output == STANDARD_OUTPUT:
        target = "folder" if EXPORTERS[format].is_folder else "file"
        raise click.UsageError(f"`--format {format}` is not printed; choose a {target} with `-o`")
    if names is not None:
        raise click.UsageError(f"`--format {format}` writes no tables; omit `--table`")


def check_devices(format: str | None, devices: Collection[int] | None) -> None:
    """Refuse `--device` with a format that does not select GPUs."""
    able = [name for name, exporter in EXPORTERS.items() if "devices" in exporter.options]
    if devices is not None and format not in able:
        raise click.UsageError("`--device` requires " + " or ".join(f"`--format {name}`" for name in able))


def write_export(
    ctx: click.Context,
    reports: tuple[str, ...],
    output: Path | None,
    *,
    format: str,
    devices: frozenset[int] | None = None,
    **options: Any,
) -> None:
    """Export the jobs of reports, log the files, and exit with 3 if inputs were skipped."""
    from nsys_pp.commands.export import export_jobs

    with show_progress() as progress:
        result = export_jobs(reports, output, format=format, devices=devices, progress=progress, **options)
    log_notes(result.notes)
    of_run = [file for file in result.files if file.source is None]
    if of_run and format == "steptask":
        paths = [file.path for file in of_run]
        databases = format_count(len(paths), "database")
        log_output(
            f"Wrote {databases} with the StepTaskInfo of a rank: {paths[0]}{' ...' * (len(paths) > 1)}",
            *paths,
        )
    elif of_run:
        paths = [file.path for file in of_run]
        jobs = format_count(of_run[0].row_count, "job")
        log_output(f"Wrote {' and '.join(map(str, paths))}: {jobs}. {result.hint}".rstrip(), *paths)
    for file in result.files:
        if file.source is not None:
            source = "" if file.path == file.source else f", a copy of {file.source}"
            rows = format_count(file.row_count, "row")
            log_output(f"Wrote {rows} of StepTaskInfo to {file.path}{source}", file.path)
    exit_if_skipped(ctx, result.skipped, result.row_counts)
