"""Aggregates of one report for the tables of a summary, by step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import polars as pl

from nsys_pp.aggregates.registry import AGGREGATES, AggregateSources
from nsys_pp.aggregates.windows import find_windows
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report
from nsys_pp.projection.ranges import OPS
from nsys_pp.run.report_training import Links, ReportTraining
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


def aggregate_groups() -> frozenset[Group]:
    """Return the groups of data that aggregates need."""
    from nsys_pp.aggregates.registry import GROUPS

    return GROUPS


def aggregate(
    report: Report, projections: pl.DataFrame, links: Links, training: ReportTraining, options: PartOptions
) -> dict[str, pl.DataFrame]:
    """Aggregate a report by the options of its part (`AGGREGATE_FRAMES`)."""
    return aggregate_report(
        report, projections=projections, links=links, training=training.frames, counted=options.ops
    )


def summarise_metrics(report: Report, links: Links, training: ReportTraining) -> dict[str, pl.DataFrame]:
    """Build the frames of metrics of a part to be stored (`METRIC_FRAMES`); none for a report without metrics."""
    if not report.sampled_metrics:
        return {}
    from nsys_pp.run.metrics import summarise_for_part
    from nsys_pp.run.network import summarise_network

    return {**summarise_for_part(report, training.frames["steps"]), **summarise_network(report, links)}


def list_hosts(report: Report, frames: Mapping[str, pl.DataFrame], *, nsys: str | None) -> pl.DataFrame:
    """List the activities of hosts in bubbles (`list_bubble_hosts`); the first reading has warned."""
    from nsys_pp.run.hosts import list_bubble_hosts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list_bubble_hosts(report.path, frames, nsys=nsys, report=report)
