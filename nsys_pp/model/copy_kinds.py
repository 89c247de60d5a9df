"""Copies from or to pageable memory -> PAGEABLE_COPIES."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.copy_kinds import PAGEABLE_COPIES
from nsys_pp.frames.raw import RawReport


def list_pageable_copies(raw: RawReport) -> pl.DataFrame:
    """List the calls that copy from or to pageable memory of the host: they are staged, and often wait.

    Returns:
        `PAGEABLE_COPIES`; empty unless kinds of memory were read and recorded.
    """
    if raw["copy_kinds"].is_empty():
        return PAGEABLE_COPIES.to_frame()
    copies = raw["copy_kinds"].filter((pl.col("source") == "pageable") | (pl.col("target") == "pageable"))
    return (
        copies.select(process_key="process", correlation_id="correlation")
        .drop_nulls()
        .unique(maintain_order=True)
        .pipe(conform, PAGEABLE_COPIES)
    )
