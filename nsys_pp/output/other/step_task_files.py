"""Files of `StepTaskInfo`: copies of the reports with this table, and a database per rank."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import REPORT_JOBS, Training
from nsys_pp.output.exporters import ExportedFile, ExportOptions, ExportResult, ExportSource
from nsys_pp.output.other.rank_databases import plan_rank_databases, write_rank_databases
from nsys_pp.output.other.step_tasks import TIMES, write_step_tasks


def export_step_tasks(training: Training, folder: Path | None, options: ExportOptions) -> ExportResult:
    """Write `StepTaskInfo` of all reports of a run, and into a folder also a database per rank.

    Args:
        training: The run.
        folder: Folder of copies with the table; None writes into the reports themselves.
        options: `sources` lists the reports.

    Raises:
        ReportError: A report is not a SQLite export, or cannot be written.
        OutputError: A copy exists, or cannot be written.
    """
    if folder is not None:
        plan_rank_databases(training, folder, force=options.force)
    reports = [(source.path, source.report, _find_jobs(training, source)) for source in options.sources]
    written = write_step_tasks(training, reports, folder, force=options.force)
    files = [ExportedFile(path=path, row_count=count, source=report) for report, path, count in written]
    if folder is not None:
        of_ranks = write_rank_databases(training, folder, force=options.force)
        files += [ExportedFile(path=path, row_count=count) for path, count in of_ranks]
    return ExportResult(files=tuple(files))


def _find_jobs(training: Training, source: ExportSource) -> pl.DataFrame:
    """Return the jobs of one report (`REPORT_JOBS`), with their times also on its own clock."""
    lanes = training.lanes.filter(pl.col("report") == source.report)
    since, until = source.window_ns
    is_own = (pl.col("start_ns") >= since) & (pl.col("start_ns") < until)
    jobs = training.jobs.filter(is_own).join(
        lanes.select("lane"), on="lane", how="semi", maintain_order="left"
    )
    on_report = (
        pl.Series(f"report_{name}", source.clock.to_report_times(jobs[name].fill_null(0).to_numpy())).set(
            jobs[name].is_null(), None
        )
        for name in TIMES
    )
    return jobs.with_columns(on_report).pipe(conform, REPORT_JOBS)
