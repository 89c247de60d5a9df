"""Time in which nsys held threads."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

OVERHEADS = build_schema(
    {  # one row per interval, any order
        "thread_key": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,  # "CUPTI Buffer flush"; null where unknown
    },
    name="OVERHEADS",
)
