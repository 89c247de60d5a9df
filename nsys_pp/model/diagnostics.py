"""Messages of nsys about the recording -> DIAGNOSTICS."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.raw import RawReport
from nsys_pp.frames.report import DIAGNOSTICS

_LOSS = r"(?i)^not all (cuda|nvtx|nccl|mpi|ucx)\b.*collected|\b(dropped|lost|discarded|overflow|overflowed|out of memory)\b"


def build_diagnostics(raw: RawReport) -> pl.DataFrame:
    """Count the errors and warnings of nsys by text.

    Returns:
        `DIAGNOSTICS`. Empty where nsys recorded none.
    """
    found = raw["diagnostics"]
    if found.is_empty():
        return DIAGNOSTICS.to_frame()
    return (
        found.with_columns(pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars())
        .group_by("severity", "text")
        .agg(count=pl.len())
        .pipe(conform, DIAGNOSTICS)
        .sort("severity", "text")
    )


def list_losses(diagnostics: pl.DataFrame) -> list[str]:
    """List the messages about lost events.

    Args:
        diagnostics: `DIAGNOSTICS`.

    Returns:
        Texts of nsys about events of CUDA, NVTX, NCCL, MPI or UCX, or about events of any kind.
    """
    if diagnostics.is_empty():
        return []
    return diagnostics.filter(pl.col("text").str.contains(_LOSS))["text"].to_list()
