"""Ranges of a report that are jobs and ran on a GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import JOB_KIND

JOB_RANGES = build_schema(
    {  # one row per range that is a job with GPU operations, by range_id
        "range_id": pl.Int64,
        "kind": JOB_KIND,
    },
    name="JOB_RANGES",
)


def list_job_ranges(jobs: pl.DataFrame) -> pl.DataFrame:
    """List the ranges of `JOBS` that have operations: `JOB_RANGES`."""
    listed = jobs[JOB_RANGES.names()]
    if jobs["start_ns"].null_count() or jobs["range_id"].null_count():
        listed = listed.filter(jobs["start_ns"].is_not_null() & jobs["range_id"].is_not_null())
    _, first = np.unique(listed["range_id"].to_numpy(), return_index=True)
    return listed[first]
