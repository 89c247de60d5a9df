"""What `nsys-pp pipeline` writes for other tools: `StepTaskInfo` tables, and the files of Paddle's tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from nsys_pp.commands.pipeline import PipelineResult, pipeline
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.run_training import TrainingOptions
from nsys_pp.compose.trace_layout import Overrides
from nsys_pp.compose.work import WorkOptions
from nsys_pp.errors import MissingDataError
from nsys_pp.read import find_reports
from nsys_pp.write.other.paddle import PaddleFiles, write_paddle
from nsys_pp.write.other.step_tasks import plan_step_tasks, write_step_tasks

_ON_REPORT = ("start_ns", "end_ns", "host_start_ns", "host_end_ns")


def write_step_tasks_of(
    inputs: Sequence[str | Path],
    output: Path | None,
    *,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    force: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> list[tuple[Path, Path, int]]:
    """Write `StepTaskInfo` of all reports, as `nsys_pp.write.other.step_tasks` tells.

    Args:
        inputs: SQLite exports, directories of them, or glob patterns.
        output: The folder of copies with the table; None writes into the reports themselves.
        training: What is said of jobs and steps.
        overrides: What is said of clocks and ranks.
        force: Replace copies that exist.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Returns:
        Of each report: its path, the file with the table, and its rows.

    Raises:
        ReportError: A report cannot be read, or is no SQLite export.
        MissingDataError: No report has anything that is known to be a job.
        OutputError: A copy exists, or cannot be written.
    """
    plan_step_tasks(find_reports(inputs), output, force=force)
    found = pipeline(inputs, training=training, overrides=overrides, nsys=nsys, work=work, progress=progress)
    reports = [(one.path, place, _jobs_of(found, place)) for place, one in enumerate(found.plan.given)]
    return write_step_tasks(found.training, reports, output, force=force)


def write_paddle_of(
    inputs: Sequence[str | Path],
    folder: Path,
    *,
    devices: frozenset[int] | None = None,
    training: TrainingOptions | None = None,
    overrides: Overrides | None = None,
    keep_going: bool = False,
    force: bool = False,
    nsys: str | None = None,
    work: WorkOptions | None = None,
    progress: Progress | None = None,
) -> PaddleFiles:
    """Write the two files of Paddle's timeline tool, as `nsys_pp.write.other.paddle` tells.

    Args:
        inputs: Reports, parts, directories of them, or glob patterns.
        folder: Where they are written.
        devices: Only these GPUs, by their number on their machine.
        training: What is said of jobs and steps.
        overrides: What is said of clocks and ranks.
        keep_going: Skip reports that cannot be read.
        force: Replace files that exist.
        nsys: The nsys that exports `.nsys-rep` files.
        work: Where reports are worked on; one by one in this process if None.
        progress: Told what is going on.

    Raises:
        ReportError: A report cannot be read, or is there twice.
        MissingDataError: No report has anything that is known to be a job; or none of the GPUs is there.
        OutputError: A file exists, or cannot be written.
    """
    found = pipeline(
        inputs,
        training=training,
        overrides=overrides,
        keep_going=keep_going,
        nsys=nsys,
        work=work,
        progress=progress,
    )
    numbers = set(found.plan.roster["gpu_number"].drop_nulls())
    if devices is not None and not devices & numbers:
        known = ", ".join(map(str, sorted(numbers)))
        raise MissingDataError(
            f"no machine has a GPU {', '.join(map(str, sorted(devices)))}", f"the GPUs are {known}"
        )
    wanted = sorted(devices) if devices is not None else None
    written = write_paddle(found.training, folder, devices=wanted, force=force)
    return replace(written, skipped=found.skipped)


def _jobs_of(found: PipelineResult, report: int) -> pl.DataFrame:
    """Give the jobs of one report with their times on its own clock as well."""
    lanes = found.training.lanes.filter(pl.col("report") == report)
    jobs = found.training.jobs.join(lanes.select("lane"), on="lane", how="semi", maintain_order="left")
    clock = found.plan.clocks.clocks[report]
    return jobs.with_columns(
        pl.Series(f"report_{name}", clock.to_report_times(jobs[name].fill_null(0).to_numpy())).set(
            jobs[name].is_null(), None
        )
        for name in _ON_REPORT
    )
