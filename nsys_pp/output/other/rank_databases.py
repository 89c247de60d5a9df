"""Databases with `StepTaskInfo` under the names that msprof-analyze and MindStudio Insight look for, one per rank.

FOLDER/node2_rank3_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_3.db

msprof-analyze searches folders that end in `ascend_pt` and takes the rank from the name of the database. Times are on the
trace's clock, so that ranks can be compared; the copies of reports have them on their own clocks.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from nsys_pp.frames.training import Training
from nsys_pp.output.files import check_output, replace_file, translate_errors
from nsys_pp.output.other.report_table import add_table
from nsys_pp.output.other.step_tasks import TIMES, describe_step_tasks, list_rows

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_UNSAFE = re.compile(r"[^0-9A-Za-z.-]+")


def write_rank_databases(training: Training, folder: Path, *, force: bool) -> list[tuple[Path, int]]:
    """Write a database with `StepTaskInfo` for each rank.

    Args:
        training: The run. GPU processes of unknown rank are left out.
        folder: Folder of the folders of ranks.
        force: Replace existing databases.

    Returns:
        Path and row count of each database, by rank. Empty where no rank is known.

    Raises:
        OutputError: A database exists, or cannot be written.
    """
    jobs = training.jobs.with_columns(pl.col(name).alias(f"report_{name}") for name in TIMES)
    tasks = describe_step_tasks(training, jobs)
    written = []
    for rank, path in plan_rank_databases(training, folder, force=force):
        own = tasks.filter(rank=rank)
        with replace_file(path, force=force) as target:
            add_table(target, list_rows(own), copied_from=path)
        written.append((path, len(own)))
    return written


def plan_rank_databases(training: Training, folder: Path, *, force: bool) -> list[tuple[int, Path]]:
    """List the ranks and their databases, create their folders, and refuse existing databases."""
    ranks = training.lanes.drop_nulls("rank").unique("rank", keep="first").sort("rank")
    planned = []
    for rank, machine in ranks.select("rank", "machine").rows():
        name = "_".join([*([_UNSAFE.sub("-", machine)] if machine else []), f"rank{rank}", "ascend_pt"])
        path = folder / name / _OUTPUT / f"ascend_pytorch_profiler_{rank}.db"
        with translate_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        check_output(path, force=force)
        planned.append((rank, path))
    return planned
