"""Kinds of the jobs that GPU operations belong to."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import gather, index_rows, is_among, numbers
from nsys_pp.arrays.innermost import find_innermost
from nsys_pp.arrays.search import number_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.training import JOB_KIND
from nsys_pp.training.report.jobs import THREADED_KINDS
from nsys_pp.training.report.launched_ops import LaunchedOps


def find_job_kinds(ops: LaunchedOps, jobs: pl.DataFrame) -> pl.Series:
    """Find the kind of the innermost job around the launch of each operation.

    Jobs on the thread of the launch come first; launches outside these belong to a job of `THREADED_KINDS` on another thread of the
    process, as backwards run on threads of their own.

    Args:
        ops: Operations of the report.
        jobs: `JOBS` of the same report.

    Returns:
        `JOB_KIND` per operation, in order; null without a known launch, and outside all jobs.
    """
    time, thread = ops.launch, ops.thread
    if jobs.is_empty():
        return pl.Series("job_kind", [None], JOB_KIND).new_from_index(0, len(time))
    jobs = jobs[["process_key", "thread_key", "host_start_ns", "host_end_ns", "kind"]]
    jobs = index_rows(jobs, number_rows(jobs.get_columns())[0])
    job = np.full(len(time), -1)
    has_call = ops.call >= 0
    job[has_call] = _find_jobs(
        thread[has_call], time[has_call], jobs, "thread_key", np.ones(len(jobs), np.bool_)
    )
    is_outside = has_call & (job < 0)
    process, is_threaded = numbers(ops.gpu_ops["process_key"]), is_among(jobs["kind"], THREADED_KINDS)
    job[is_outside] = _find_jobs(process[is_outside], time[is_outside], jobs, "process_key", is_threaded)
    return gather(jobs["kind"], job).alias("job_kind")


def _find_jobs(owner: Int64s, time: Int64s, jobs: pl.DataFrame, key: str, is_chosen: Bools) -> Int64s:
    """Find the innermost of the chosen jobs with the same owner around each time; -1 without one."""
    rows = np.flatnonzero(is_chosen)
    of, start, end = (numbers(jobs[name])[rows] for name in (key, "host_start_ns", "host_end_ns"))
    at = find_innermost(owner, time, interval_owner=of, start=start, end=end)
    return np.append(rows, -1)[at]
