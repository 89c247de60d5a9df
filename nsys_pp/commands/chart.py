"""`nsys-pp chart`: a picture of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from nsys_pp.commands.pipeline import build_pipeline
from nsys_pp.frames.verdict import Verdict
from nsys_pp.output.files import check_output
from nsys_pp.output.formats import CHARTS, EXPORTERS, ExportOptions, find_exporter
from nsys_pp.run.inputs import Batch, Result
from nsys_pp.run.options import Inputs, RunOptions, check_choice, check_keywords


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChartResult(Result):
    """Counts of a chart."""

    output: Path
    jobs: int
    lanes: int
    steps: int
    notes: list[str]  # inferred, refused and doubtful facts of the training, in sentences
    verdict: Verdict


def chart(
    inputs: Inputs,
    output: str | Path,
    *,
    format: str | None = None,
    title: str | None = None,
    force: bool = False,
    **options: Unpack[RunOptions],
) -> ChartResult:
    """Draw a pipeline: a lane per GPU, with jobs, messages and bubbles.

    Args:
        inputs: Reports, parts, folders of them, or glob patterns.
        output: The picture.
        format: "html", "svg" or "png". Default: inferred from the file extension.
        title: Title of the picture. Default: the name of the output.
        force: Replace an existing output.
        options: See `nsys_pp.RunOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        MissingDataError: No report has GPU operations.
        OutputError: The output exists, or cannot be written.
        NsysPPError: The machine has no font for a PNG, or events are months apart.
    """
    check_keywords(options, RunOptions)
    target = Path(output)
    if format is None:
        exporter = find_exporter(target)
        format = target.suffix.removeprefix(".") if exporter is None else exporter.name
    check_choice("format", format, CHARTS)
    check_output(target, force=force)
    result = build_pipeline(
        Batch(inputs, options), options, check=lambda paths: check_output(target, force=force, inputs=paths)
    )
    export_options = ExportOptions(
        force=force,
        title=title,
        verdict=result.verdict,
        has_all_steps=options.get("steps") is not None,
    )
    training = result.training
    written = EXPORTERS[format].write(training, target, export_options)
    step_count = training.step_count
    return ChartResult(
        output=target,
        jobs=written.files[0].row_count,
        lanes=len(training.lanes),
        steps=step_count if format == "html" or export_options.has_all_steps else min(step_count, 1),
        notes=[*written.notes, *training.notes],
        verdict=result.verdict,
        skipped=result.skipped,
        row_counts=result.row_counts,
    )
