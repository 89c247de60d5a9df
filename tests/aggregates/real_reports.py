"""Real reports with all sources of aggregates."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys_pp.aggregates.times import Windows, find_windows
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES
from nsys_pp.frames.part import PartOptions
from nsys_pp.frames.raw import ALL_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report
from nsys_pp.run.report import survey_report
from nsys_pp.run.report_training import describe_training, find_links, project_report

NAMES = ["GindaChen__mfu_2gpu_before", "Athrun0109", "zx3xyy__result_2_7B_nvtx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealReport:
    """A report, with its launches, jobs and steps."""

    report: Report
    launches: pl.DataFrame
    jobs: pl.DataFrame
    steps: pl.DataFrame

    @property
    def windows(self) -> Windows:
        """Return the windows of its steps."""
        return self.find_windows(self.steps)

    def find_windows(self, steps: pl.DataFrame) -> Windows:
        """Return the windows of other steps."""
        report = self.report
        events = {"api_calls": report.api_calls, "os_calls": report.os_calls, "ranges": report.ranges}
        return find_windows(steps, gpu_ops=report.gpu_ops, **events)


def read_real_report(reports: list[Path], name: str) -> RealReport:
    """Read the report with this prefix of its name."""
    [path] = [path for path in reports if path.name.startswith(name)]
    return _read(path)


def aggregate(path: Path) -> dict[str, pl.DataFrame]:
    """Build all aggregates of a report."""
    frames = survey_report(path, PartOptions(), nsys=None, with_aggregates=True).frames
    return {name: frames[name] for name in AGGREGATE_FRAMES}


@functools.cache
def _read(path: Path) -> RealReport:
    report = build_report(read_report(path, need=ALL_GROUPS, nsys=None))
    links = find_links(report)
    projections = project_report(report, ops=("kernel",), scope="auto")
    frames = describe_training(report, projections=projections, links=links, options=PartOptions()).frames
    return RealReport(report=report, launches=links.launches, jobs=frames["jobs"], steps=frames["steps"])
