"""Kinds of memory of copies."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema

PAGEABLE_COPIES = build_schema(
    {  # one row per call that copies from or to pageable memory of the host
        "process_key": pl.Int64,
        "correlation_id": pl.Int64,
    },
    name="PAGEABLE_COPIES",
)
