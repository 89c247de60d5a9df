"""Aggregates of one report for the tables of a summary, by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from nsys_pp.aggregates.registry import AGGREGATES, AggregateSources
from nsys_pp.aggregates.windows import find_windows
from nsys_pp.compose.report_training import Links
from nsys_pp.frames.report import Report
from nsys_pp.projection.ranges import OPS
from nsys_pp.training.report.operators import name_operators


def aggregate_report(
    report: Report,
    *,
    projections: pl.DataFrame,
    links: Links,
    training: Mapping[str, pl.DataFrame],
    counted: Sequence[str],
) -> dict[str, pl.DataFrame]:
    """Build the aggregates of a report.

    Args:
        report: Read with `nsys_pp.aggregates.registry.GROUPS`.
        projections: Its `PROJECTIONS`.
        links: Causes of its operations.
        training: Its `REPORT_FRAMES`.
        counted: Operations of its projections: keys of `nsys_pp.projection.ranges.OPS`.

    Returns:
        `AGGREGATE_FRAMES`, by name.
    """
    sources = AggregateSources(
        report=report,
        projections=projections,
        launches=links.launches,
        requests=links.requests,
        operators=name_operators(report.ranges),
        steps=training["steps"],
        jobs=training["jobs"].filter(pl.col("range_id").is_not_null()),  # inferred ones are uncertain
        windows=find_windows(
            training["steps"],
            gpu_ops=report.gpu_ops,
            api_calls=report.api_calls,
            os_calls=report.os_calls,
            ranges=report.ranges,
        ),
        op_kinds=tuple(kind for name in counted for kind in OPS[name]),
    )
    return {name: build(sources) for name, build in AGGREGATES.items()}
