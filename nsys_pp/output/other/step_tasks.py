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

import errno
import os
import re
import resource
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import polars as pl

from nsys_pp.errors import ReportError, disk_errno, result_code
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import COMPUTE_KINDS, REPORT_JOBS, Training
from nsys_pp.output.files import check_output, make_folders, replace_file, translate_errors
from nsys_pp.output.formats import ExportedFile, ExportOptions, ExportResult, ExportSource
from nsys_pp.read.files import IMMUTABLE, NO_LOCKS, check_database, explain_sqlite, name_uri

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


# times of jobs that `REPORT_JOBS` also has on the report's clock, as `report_start_ns` and so on
TIMES = ("start_ns", "end_ns", "host_start_ns", "host_end_ns")


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
    shown = (
        jobs.join(jobs.select(outer="job", outer_kind="kind"), on="outer", how="left")
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


def write_step_tasks(
    training: Training,
    reports: Sequence[tuple[Path, pl.DataFrame]],
    folder: Path | None,
    *,
    force: bool,
) -> list[ExportedFile]:
    """Write `StepTaskInfo` of each report, into copies or in place.

    All copies appear, or none. In place, a report has either the whole new table or its previous
    content; an existing table is replaced. No report is changed before all are checked.

    Args:
        training: The run.
        reports: Path of each, and its jobs as `describe_step_tasks` needs them. Several ranks of a report
            differ in `rank` and `device`.
        folder: Folder of the copies `<report>.steptask.db`, with the subfolders of the reports if names
            repeat; None writes into the reports.
        force: Replace existing copies.

    Returns:
        The file with the table of each report.

    Raises:
        ReportError: A report is not a SQLite export, is read-only, damaged, or locked by another program.
        OutputError: A copy cannot be written.
    """
    targets = plan_step_tasks(folder, inputs=[source for source, _ in reports], force=force)
    done = []
    with make_folders({target.parent for target in targets}), ExitStack() as all_or_none:
        for (source, jobs), target in zip(reports, targets, strict=True):
            tasks = describe_step_tasks(training, jobs)
            if folder is None:
                with translate_errors(source):
                    add_table(source, tasks)
            else:
                copy = all_or_none.enter_context(replace_file(target, force=force, copied_from=source))
                copy_report(source, copy)
                add_table(copy, tasks, copied_from=source)
            done.append(ExportedFile(path=target, row_count=len(tasks), source=source))
    return done


def plan_step_tasks(folder: Path | None, *, inputs: Sequence[Path], force: bool) -> list[Path]:
    """List the files that get tables; refuse unsuitable reports before any work is done.

    Args:
        folder: Folder of the copies; None writes into the reports.
        inputs: Reports.
        force: Replace existing copies.

    Raises:
        ReportError: A report is not a SQLite export, or is read-only and `folder` is None.
        OutputError: A copy exists.
    """
    for source in inputs:
        check_target(source, in_place=folder is None)
    if folder is None:
        return [*inputs]
    names = [re.sub(r"\.(sqlite|db)$", "", source.name) + ENDING for source in inputs]
    parents = [Path()] * len(inputs)
    if len({*names}) < len(names):
        absolute = [source.absolute().parent for source in inputs]
        parents = [parent.relative_to(os.path.commonpath(absolute)) for parent in absolute]
    targets = [folder / parent / name for parent, name in zip(parents, names, strict=True)]
    for target in targets:
        check_output(target, force=force, inputs=inputs, makes_folder=True)
    return targets


LOCK_TIMEOUT_S = 5.0  # time for another program to release its lock

_COPY_HINT = "write a copy with the table instead: `--steptask FOLDER`"


def check_target(path: Path, *, in_place: bool) -> None:
    """Refuse a report if a table cannot be added to it.

    Args:
        path: A report.
        in_place: Whether the report itself is to be changed, not a copy.

    Raises:
        ReportError: The report is not a SQLite export, or it is read-only and `in_place` is set.
    """
    check_database(path)
    if in_place:
        state = path.stat()
        # the mode counts for root, too, who may write any file
        bits = state.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
        if not (bits and os.access(path, os.W_OK)):
            raise ReportError(f"cannot write into `{path}`: it is read-only", _COPY_HINT)
        if 0 <= resource.getrlimit(resource.RLIMIT_FSIZE)[0] < state.st_size:
            # what SQLite has changed could not be taken back
            raise ReportError(
                f"cannot write into `{path}`: files may not be so large",
                "raise the limit of the shell or the batch job: `ulimit -f`",
            )


def copy_report(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a SQLite database; nothing is written beside it.

    Raises:
        ReportError: The database cannot be read, or another program is writing it.
        OSError: The disk is full.
    """
    uri = check_database(source)
    with _explained(source, target):
        try:
            _back_up(uri, target)
        except sqlite3.OperationalError as error:
            if IMMUTABLE in uri or result_code(error) not in NO_LOCKS:
                raise
            _back_up(uri + IMMUTABLE, target)


def add_table(path: Path, tasks: pl.DataFrame, *, copied_from: Path | None = None) -> None:
    """Add `STEP_TASKS` to a database in one transaction, or replace them there.

    Args:
        path: The database.
        tasks: The rows.
        copied_from: Original of a database that is a private copy. The copy is deleted on failure, so it
            needs no journal.

    Raises:
        ReportError: Another program is writing it, or it is damaged or read-only.
        OSError: The disk is full.
    """
    columns = [
        f"[{name}] {'TEXT' if dtype == pl.String else 'INTEGER'}" for name, dtype in STEP_TASKS.items()
    ]
    with _explained(copied_from or path, path), closing(_connect(name_uri(path, "rw"))) as connection:
        if copied_from is not None:
            connection.execute("PRAGMA journal_mode = OFF").fetchall()
            connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f'DROP TABLE IF EXISTS "{TABLE}"')
            connection.execute(f'CREATE TABLE "{TABLE}" ({", ".join(columns)})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{TABLE}" VALUES ({marks})', tasks.rows())
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def _back_up(source: str, target: Path) -> None:
    with closing(_connect(source)) as original, closing(_connect(name_uri(target, "rwc"))) as copy:
        # blocks writers; a backup alone would wait for them forever
        original.execute("BEGIN")
        original.execute("SELECT 1 FROM sqlite_master").fetchone()
        original.backup(copy)


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S)


@contextmanager
def _explained(path: Path, output: Path) -> Iterator[None]:
    """Raise a `ReportError` for errors of SQLite, and an `OSError` for those of the disk."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        is_closed = result_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if is_closed and output == path:
            raise ReportError(
                f"cannot write into `{path}`: its file or folder is read-only", _COPY_HINT
            ) from None
        number = disk_errno(error, output)
        is_write = is_closed or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_WRITE
        if number == errno.ENOSPC or (number is not None and is_write):
            raise OSError(number, str(error)) from None
        raise explain_sqlite(path, error) from None


def write_rank_databases(training: Training, folder: Path, *, force: bool) -> list[ExportedFile]:
    """Write a database with `StepTaskInfo` for each rank.

    Args:
        training: The run. GPU processes of unknown rank are left out.
        folder: Folder of the folders of ranks.
        force: Replace existing databases.

    Returns:
        The databases, by rank. Empty where no rank is known.

    Raises:
        OutputError: A database exists, or cannot be written.
    """
    jobs = training.jobs.with_columns(pl.col(name).alias(f"report_{name}") for name in TIMES)
    tasks = describe_step_tasks(training, jobs)
    written, planned = [], plan_rank_databases(training, folder, force=force)
    with make_folders({path.parent for _, path in planned}), ExitStack() as all_or_none:
        for rank, path in planned:
            own = tasks.filter(rank=rank)
            add_table(all_or_none.enter_context(replace_file(path, force=force)), own, copied_from=path)
            written.append(ExportedFile(path=path, row_count=len(own)))
    return written


def plan_rank_databases(training: Training, folder: Path, *, force: bool) -> list[tuple[int, Path]]:
    """List the ranks and their databases, and refuse existing ones."""
    ranks = training.lanes.drop_nulls("rank").unique("rank", keep="first").sort("rank")
    planned = []
    for rank, machine in ranks.select("rank", "machine").rows():
        of_machine = [re.sub(r"[^0-9A-Za-z.-]+", "-", machine)] if machine else []
        name = "_".join([*of_machine, f"rank{rank}", "ascend_pt"])
        path = folder / name / "ASCEND_PROFILER_OUTPUT" / f"ascend_pytorch_profiler_{rank}.db"
        check_output(path, force=force, makes_folder=True)
        planned.append((rank, path))
    return planned


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
    reports = [(source.path, _find_jobs(training, source)) for source in options.sources]
    files = write_step_tasks(training, reports, folder, force=options.force)
    if folder is not None:
        files += write_rank_databases(training, folder, force=options.force)
    return ExportResult(files=tuple(files))


def _find_jobs(training: Training, source: ExportSource) -> pl.DataFrame:
    """Return the jobs of one report (`REPORT_JOBS`), with their times also on its own clock."""
    lanes = training.lanes.filter(pl.col("report") == source.report)
    since, until = source.window_ns
    jobs = training.jobs.filter((pl.col("start_ns") >= since) & (pl.col("start_ns") < until)).join(
        lanes.select("lane"), on="lane", how="semi", maintain_order="left"
    )
    on_report = (
        pl.Series(f"report_{name}", source.clock.to_report_times(jobs[name].fill_null(0).to_numpy())).set(
            jobs[name].is_null(), None
        )
        for name in TIMES
    )
    return jobs.with_columns(on_report).pipe(conform, REPORT_JOBS)
