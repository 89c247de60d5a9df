"""`StepTaskInfo`: the table of bars in msprof-analyze's pipeline charts.

Four columns are theirs (`name`, `startNs`, `endNs`, `type`); our columns follow. Values of `name` and `type`:

* Jobs of a DualPipeV schedule: their label ("3b", "7F+13B") and phase (0 to 6).
* Other schedules, as in the traditional pipeline: `FP` is 0 and `BP` is 1; the micro-batch has its own
  column.
* Other kinds of jobs have their own name and number (`TYPES`), above the phases.

Sends and receives have no rows, since these readers draw one flat row of bars, and messages elsewhere;
jobs inside a computing job (the parts of an overlapped forward and backward) have none either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import COMPUTE_KINDS, Training
from nsys_pp.output.files import check_output, replace_file, translate_errors
from nsys_pp.output.other.report_table import Rows, add_table, check_target, copy_report

TABLE = "StepTaskInfo"
ENDING = ".steptask.db"  # not `.sqlite`: copies in a folder must not be found as reports

TYPES = {  # kind -> text of the bar, and color group; 2 to 6 are phases of DualPipeV
    "forward": ("FP", 0),
    "backward": ("BP", 1),
    "weight_gradient": ("W", 7),
    "recompute": ("R", 8),
    "forward_backward": ("F+B", 9),
    "optimizer": ("Optimizer", 10),
    "data": ("Data", 11),
    "other": ("Other", 12),
}
TIMES = ("start_ns", "end_ns", "host_start_ns", "host_end_ns")
"""Times of jobs that `REPORT_JOBS` also has on the report's clock, as `report_start_ns` and so on."""

STEP_TASKS = build_schema(
    {  # one row per job, by startNs; times are on the report's clock, as in its other tables
        "name": pl.String,
        "startNs": pl.Int64,
        "endNs": pl.Int64,
        "type": pl.Int64,
        "kind": pl.String,
        "micro_batch": pl.Int64,
        "chunk": pl.Int64,
        "stage": pl.Int64,
        "rank": pl.Int64,
        "host": pl.String,
        "device": pl.Int64,  # CUDA ordinal within its process, as in the report's other tables
        "step": pl.Int64,
        "kernels": pl.Int64,
        "hostStartNs": pl.Int64,
        "hostEndNs": pl.Int64,
        "source": pl.String,  # rules that named it; "inferred" if its ids are inferred
    },
    name="STEP_TASKS",
)


def describe_step_tasks(training: Training, jobs: pl.DataFrame) -> pl.DataFrame:
    """Describe the jobs of one report as rows of `StepTaskInfo`.

    Args:
        training: The run, for its lanes, schedule and preset.
        jobs: `REPORT_JOBS`.

    Returns:
        `STEP_TASKS`. Empty in, empty out.
    """
    around = jobs.select(outer="job", outer_kind="kind")
    shown = (
        jobs.join(around, on="outer", how="left")
        .filter(
            pl.col("kind").is_in([*TYPES]),
            ~pl.col("outer_kind").is_in(COMPUTE_KINDS).fill_null(False),
            pl.col("report_start_ns").is_not_null(),
        )
        .join(training.lanes.select("lane", "stage", "rank", "machine", "device_id"), on="lane", how="left")
    )
    is_phased = pl.col("phase").is_not_null() & (training.schedule.name == "dualpipev")
    is_overlapped = pl.col("kind") == "forward_backward"
    kind = pl.col("kind").cast(pl.String)
    texts = kind.replace_strict({key: text for key, (text, _) in TYPES.items()}, return_dtype=pl.String)
    numbers = kind.replace_strict({key: number for key, (_, number) in TYPES.items()}, return_dtype=pl.Int64)
    return (
        shown.with_columns(
            name=pl.when(is_phased | is_overlapped).then(pl.coalesce("label", texts)).otherwise(texts),
            type=pl.when(is_phased).then("phase").otherwise(numbers),
            startNs="report_start_ns",
            endNs="report_end_ns",
            host="machine",
            device="device_id",
            kernels="op_count",
            hostStartNs="report_host_start_ns",
            hostEndNs="report_host_end_ns",
            source=pl.when("is_inferred").then(pl.lit("inferred")).otherwise(pl.lit(training.preset)),
        )
        .pipe(conform, STEP_TASKS)
        .sort("startNs", "endNs", "rank", "device", maintain_order=True)
    )


def list_rows(tasks: pl.DataFrame) -> Rows:
    """List `STEP_TASKS` as the rows of the table."""
    columns = {name: str if dtype == pl.String else int for name, dtype in STEP_TASKS.items()}
    return Rows(TABLE, columns, tasks.rows())


def check_step_tasks(folder: Path | None, inputs: Sequence[Path], force: bool) -> None:
    """Refuse unsuitable reports and existing copies, as `plan_step_tasks` does."""
    plan_step_tasks(inputs, folder, force=force)


def write_step_tasks(
    training: Training,
    reports: Sequence[tuple[Path, int, pl.DataFrame]],
    folder: Path | None,
    *,
    force: bool,
) -> list[tuple[Path, Path, int]]:
    """Write `StepTaskInfo` of each report, into copies or in place.

    A copy appears whole or not at all. In place, a report has either the whole new table or its previous
    content; an existing table is replaced. No report is changed before all are checked.

    Args:
        training: The run.
        reports: Path of each, its number in `LANES.report`, and its jobs as `describe_step_tasks`
            needs them. Several ranks of a report differ in `rank` and `device`.
        folder: Folder of the copies `<report>.steptask.db`, with the subfolders of the reports if names
            repeat; None writes into the reports.
        force: Replace existing copies.

    Returns:
        Per report: its path, the file with the table, and its row count.

    Raises:
        ReportError: A report is not a SQLite export, is read-only, damaged, or locked by another program.
        OutputError: A copy cannot be written.
    """
    targets = plan_step_tasks([source for source, _, _ in reports], folder, force=force)
    done = []
    for (source, _, jobs), target in zip(reports, targets, strict=True):
        tasks = describe_step_tasks(training, jobs)
        rows = list_rows(tasks)
        if folder is None:
            with translate_errors(source):
                add_table(source, rows)
        else:
            with replace_file(target, force=force, copied_from=source) as copy:
                copy_report(source, copy)
                add_table(copy, rows, copied_from=source)
        done.append((source, target, len(tasks)))
    return done


def plan_step_tasks(sources: Sequence[Path], folder: Path | None, *, force: bool) -> list[Path]:
    """List the files that get tables; refuse unsuitable reports before any work is done.

    Args:
        sources: Reports.
        folder: Folder of the copies, created if necessary; None writes into the reports.
        force: Replace existing copies.

    Raises:
        ReportError: A report is not a SQLite export, or is read-only and `folder` is None.
        OutputError: A copy exists, or its folder cannot be created.
    """
    for source in sources:
        check_target(source, in_place=folder is None)
    return [*sources] if folder is None else _name_copies(sources, folder, force=force)


def _name_copies(sources: Sequence[Path], folder: Path, *, force: bool) -> list[Path]:
    """Name the copies, create their folders, and refuse existing ones."""
    flat = [folder / _copy_name(source) for source in sources]
    if len({*flat}) < len(flat):
        parents = [source.absolute().parent for source in sources]
        common = os.path.commonpath(parents)
        flat = [
            folder / parent.relative_to(common) / _copy_name(source)
            for parent, source in zip(parents, sources, strict=True)
        ]
    for target in flat:
        with translate_errors(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
        check_output(target, force=force, inputs=sources)
    return flat


def _copy_name(source: Path) -> str:
    return re.sub(r"\.(sqlite|db)$", "", source.name) + ENDING
