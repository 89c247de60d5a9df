"""`nsys-pp chart`: a picture of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys_pp.commands.pipeline import pipeline
from nsys_pp.compose.batch import Skipped
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.run_training import TrainingOptions
from nsys_pp.compose.trace_layout import Overrides
from nsys_pp.compose.work import WorkOptions
from nsys_pp.read import find_reports
from nsys_pp.write.chart import CHARTS
from nsys_pp.write.files import check_output, open_output, replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartResult:
    """What a chart shows."""

    jobs: int
    lanes: int
    steps: int
    notes: list[str]
    skipped: Skipped


def chart(
    inputs: Sequence[str | Path],
    output: Path,
    *,
    format: str | None = None,
    title: str | None = None,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    keep_going: bool = False,
    force: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> ChartResult:
    """Draw how a pipeline ran.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        output: The picture; replaced only with `force`.
        format: "html", "svg" or "png"; by the ending of `output` if None.
        title: What stands above it; the output's name if None.
        training: What is said of jobs and steps.
        overrides: What is said of clocks and ranks.
        keep_going: Skip reports that cannot be read, and say so in the result.
        force: Replace an output that exists.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is there twice.
        MissingDataError: No report has anything that is known to be a job.
        OutputError: The output exists, or cannot be written.
        NsysPPError: What draws charts is not installed.
        KeyError: The format is none of these.
    """
    write = CHARTS[format or output.suffix.removeprefix(".")]
    check_output(output, force=force, inputs=find_reports(inputs, with_parts=True))
    found = pipeline(
        inputs,
        training=training,
        overrides=overrides,
        keep_going=keep_going,
        nsys=nsys,
        work=work,
        progress=progress,
    )
    drawn = found.training
    with replace_file(output, force=force) as target, open_output(target) as stream:
        write(drawn, stream, title=title or output.stem)
    return ChartResult(
        jobs=len(drawn.jobs),
        lanes=len(drawn.lanes),
        steps=drawn.steps["step"].n_unique(),
        notes=drawn.notes,
        skipped=found.skipped,
    )
