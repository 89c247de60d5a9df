"""Sums of one report that its part keeps for tables; modules that a trace does not need are imported when they are used."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from nsys_pp.compose.report_training import Links, ReportTraining
from nsys_pp.frames.groups import Group
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.report import Report


def aggregate_groups() -> frozenset[Group]:
    """Return the groups of data that aggregates need."""
    from nsys_pp.aggregates.registry import GROUPS

    return GROUPS


def aggregate(
    report: Report, projections: pl.DataFrame, links: Links, training: ReportTraining, options: PartOptions
) -> dict[str, pl.DataFrame]:
    """Aggregate a report by the options of its part (`AGGREGATE_FRAMES`)."""
    from nsys_pp.compose.report_aggregates import aggregate_report

    return aggregate_report(
        report, projections=projections, links=links, training=training.frames, counted=options.ops
    )


def summarise_metrics(report: Report, links: Links, training: ReportTraining) -> dict[str, pl.DataFrame]:
    """Build the frames of metrics of a part to be stored (`METRIC_FRAMES`); none for a report without metrics."""
    if not report.sampled_metrics:
        return {}
    from nsys_pp.compose.part_metrics import summarise_for_part
    from nsys_pp.compose.part_network import summarise_network

    return {**summarise_for_part(report, training.frames["steps"]), **summarise_network(report, links)}


def list_hosts(
    path: Path, frames: Mapping[str, pl.DataFrame], *, nsys: str | None, report: Report | None = None
) -> pl.DataFrame:
    """List the activities of hosts in bubbles (`list_bubble_hosts`); the first reading has warned."""
    from nsys_pp.compose.bubble_hosts import list_bubble_hosts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list_bubble_hosts(path, frames, nsys=nsys, report=report)
