"""Ranges of a report that are jobs and ran on a GPU."""

from __future__ import annotations

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
