"""Ranges without a projection and operations without a launch, counted by reason."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.frames.raw import build_row_counts, list_counts
from nsys_pp.projection.ranges import Scope, count_cross_thread


def count_projected(
    ranges: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launches: pl.DataFrame,
    projections: pl.DataFrame | None,
    scope: Scope,
) -> pl.DataFrame:
    """Count the ranges that were projected and the operations that a call launched.

    Args:
        ranges: `RANGES`.
        gpu_ops: `GPU_OPS`.
        launches: `LAUNCHES` of all operations.
        projections: `PROJECTIONS` of the ranges; None: they were not projected, and are not counted.
        scope: Launches that counted.

    Returns:
        `ROW_COUNTS` of stage "projection", of the tables "ranges" and "gpu_ops".
    """
    rows = []
    if projections is not None:
        crossing = count_cross_thread(ranges) if scope == "thread" else 0
        without = len(ranges) - _count_distinct(projections["range_id"]) - crossing
        reasons = {
            "end on another thread than they began (scope thread)": crossing,
            "launched no GPU operation that counts": without,
        }
        rows += [*list_counts("projection", "ranges", len(ranges), reasons)]
    lost = len(gpu_ops) - _count_distinct(launches["op_id"])
    reasons = {"without the CUDA call that launched them": lost}
    return build_row_counts([*rows, *list_counts("projection", "gpu_ops", len(gpu_ops), reasons)])


def _count_distinct(ids: pl.Series) -> int:
    """Count the distinct values of a sorted column without nulls."""
    return int(np.count_nonzero(np.diff(ids.to_numpy()))) + 1 if len(ids) else 0
