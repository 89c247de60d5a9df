"""`nsys-pp pipeline --format NAME`: the jobs of a run in the format of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsys_pp.commands.pipeline import pipeline
from nsys_pp.compose.batch import Skipped
from nsys_pp.read import find_reports
from nsys_pp.write.exporter import ExportedFile, ExportOptions, ExportSource
from nsys_pp.write.exporters import EXPORTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJobsResult:
    """Files that hold the jobs of a run.

    Attributes:
        files: In the order of writing.
        notes: Missing or inferred facts, in sentences.
        hint: How to open the files, in a sentence.
        skipped: Inputs that could not be read, each with its error.
    """

    files: tuple[ExportedFile, ...]
    notes: tuple[str, ...]
    hint: str
    skipped: Skipped


def export_jobs(
    inputs: Sequence[str | Path],
    output: Path,
    *,
    format: str,
    devices: frozenset[int] | None = None,
    title: str | None = None,
    force: bool = False,
    **options: Any,
) -> ExportJobsResult:
    """Write the jobs of a run in a format of `nsys_pp.write.exporters`.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        output: File or folder, as the format has it.
        format: Name of the format, a key of `EXPORTERS`.
        devices: Include only these GPUs (index per machine, as in nvidia-smi).
        title: Heading of the output. Default: the name of the output.
        force: Replace files that exist.
        options: Options of `pipeline`.

    Raises:
        ReportError: A report cannot be read, is there twice, or is not of the kind that the format needs.
        MissingDataError: No report has a job, or none of `devices` exists.
        OutputError: A file exists, or cannot be written.
        KeyError: The format does not exist.
    """
    exporter = EXPORTERS[format]
    exporter.check(output, find_reports(inputs, with_parts=True), force)
    result = pipeline(inputs, **options)
    written = exporter.write(
        result.training,
        output,
        ExportOptions(
            force=force,
            title=title,
            devices=None if devices is None else tuple(sorted(devices)),
            sources=tuple(
                ExportSource(path=given.path, report=report, clock=clock)
                for report, (given, clock) in enumerate(
                    zip(result.plan.given, result.plan.clocks.clocks, strict=True)
                )
            ),
        ),
    )
    return ExportJobsResult(
        files=written.files, notes=written.notes, hint=written.hint, skipped=result.skipped
    )
