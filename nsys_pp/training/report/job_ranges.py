"""Ranges of jobs that ran on a GPU -> JOB_RANGES."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, has_value, index_rows, numbers
from nsys_pp.frames.training import JOB_RANGES


def list_job_ranges(jobs: pl.DataFrame) -> pl.DataFrame:
    """List the ranges of `JOBS` that have operations: `JOB_RANGES`."""
    range_id = numbers(jobs["range_id"])
    rows = np.flatnonzero((range_id != NEVER) & has_value(jobs["start_ns"]))
    _, first = np.unique(range_id[rows], return_index=True)
    return index_rows(jobs[JOB_RANGES.names()], rows[first])
