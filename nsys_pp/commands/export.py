"""`nsys-pp pipeline --format NAME`: the jobs of a run in the format of another tool."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from nsys_pp.commands.pipeline import build_pipeline
from nsys_pp.frames.conform import ShortRepr
from nsys_pp.output.formats import EXPORTERS, ExportedFile, ExportOptions, ExportSource
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.options import Inputs, RunOptions, check_choice, check_keywords

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportJobsResult(ShortRepr):
    """Files that hold the jobs of a run.

    Attributes:
        files: In the order of writing.
        notes: Missing or inferred facts, in sentences.
        hint: How to open the files, in a sentence.
        skipped: Inputs that could not be read, each with its error.
        row_counts: `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason.
    """

    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...]
    hint: str
    skipped: Skipped
    row_counts: pl.DataFrame


def export_jobs(
    inputs: Inputs,
    output: str | Path | None,
    *,
    format: str,
    devices: Collection[int] | None = None,
    title: str | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> ExportJobsResult:
    """Write the jobs of a run in a format of `nsys_pp.output.formats`.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: File or folder, as the format has it; None: the reports themselves (format "steptask").
        format: Name of the format, a key of `EXPORTERS`.
        devices: Include only these GPUs (index per machine, as in nvidia-smi).
        title: Heading of the output. Default: the name of the output.
        force: Replace files that exist.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, is named twice, or is not of the kind that the format needs.
        MissingDataError: No report has a job, or none of `devices` exists.
        OutputError: A file exists, or cannot be written.
    """
    check_keywords(options, RunOptions)
    check_choice("format", format, EXPORTERS)
    exporter = EXPORTERS[format]
    target: Any = None if output is None else Path(output)  # "steptask" accepts None
    needs_reports = "sources" in exporter.options
    batch = Batch(inputs, options, with_parts=not needs_reports)
    result = build_pipeline(
        batch,
        options,
        needs_jobs=exporter.needs_jobs,
        check=lambda paths: exporter.check(target, paths, force),
    )
    run = result.run
    sources = (
        ExportSource(path=recorded.path, report=report, clock=clock, window_ns=window)
        for recorded, report, clock, window in zip(
            run.inputs, run.captures.first, run.clocks.clocks, run.capture_windows, strict=True
        )
    )
    export_options = ExportOptions(
        force=force,
        title=title,
        devices=None if devices is None else tuple(sorted(devices)),
        sources=tuple(sources),
        verdict=tuple(result.verdict.lines) if "verdict" in exporter.options else (),
    )
    written = exporter.write(result.training, target, export_options)
    return ExportJobsResult(
        files=written.files,
        notes=written.notes,
        hint=written.hint,
        skipped=result.skipped,
        row_counts=result.row_counts,
    )
