"""Projection of one report."""

from __future__ import annotations

import warnings

import polars as pl

from nsys_pp.frames.report import Report
from nsys_pp.projection.ranges import Scope, count_cross_thread, project_ranges
from nsys_pp.projection.waited_calls import Waited


def project_report(
    report: Report,
    *,
    ops: tuple[str, ...],
    scope: Scope,
    per_stream: bool = False,
    launches: pl.DataFrame | None = None,
    waited: Waited | None = None,
) -> pl.DataFrame:
    """Project the ranges of a report (`PROJECTIONS`); warns of ranges that scope "thread" skips.

    Args:
        report: Read with ranges and operations.
        ops: Operations that count.
        scope: Launches that count.
        per_stream: One row per stream, not per device.
        launches: `LAUNCHES` of the report; matched here if None.
        waited: Calls that threads waited for; found here if None.
    """
    crossing = count_cross_thread(report.ranges)
    if scope == "thread" and crossing:
        warnings.warn(
            f"`{report.path}`: skipped {crossing:,} ranges that end on another thread than they began"
            " (`--scope process` projects them)",
            stacklevel=3,
        )
    return project_ranges(
        report.ranges,
        report.api_calls,
        report.gpu_ops,
        ops=ops,
        scope=scope,
        per_stream=per_stream,
        launches=launches,
        waited=waited,
    )
