"""Jobs and steps of simulated reports, analysed as the commands do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fixtures.simulate import main
from nsys_pp.frames.ids import pid
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import project_ranges
from nsys_pp.read import read_report
from nsys_pp.training.jobs import THREADED_KINDS, assign_steps, build_jobs, widen_projections
from nsys_pp.training.launched import LaunchedOps
from nsys_pp.training.names import Rules, choose_rules, name_jobs, name_steps
from nsys_pp.training.steps import find_steps

SMALL = "--pp 2 --micro-batches 4 --layers 1 --steps 2 --brief-truth --jobs 1 --machines 1 --per machine"
APART = "--machines 2 --per rank"  # a report for each rank


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedReport:
    """Jobs and steps of one report of a run; times are true UTC."""

    name: str
    report: Report
    rules: Rules
    jobs: pl.DataFrame  # JOBS with `rank`
    steps: pl.DataFrame  # STEPS with `rank`


def simulate_reports(folder: Path, arguments: str) -> Path:
    """Write a small run into `folder`."""
    main([str(folder), *SMALL.split(), *arguments.split()])
    return folder


def read_events(path: Path) -> Report:
    """Read ranges and operations of a report."""
    return build_report(read_report(path, need=frozenset({"ranges", "ops"})))


def analyse_report(
    report: Report, rules: Rules, *, step_rules: Rules | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `JOBS` and `STEPS` of a report."""
    named, step_ranges = name_jobs(report.ranges, rules), name_steps(report.ranges, step_rules or rules)
    compute_ops = report.gpu_ops.filter(~pl.col("is_communication")).drop("op_id").with_row_index("op_id")
    ids = pl.concat([named["range_id"], step_ranges["range_id"]])
    threaded = named.filter(pl.col("kind").is_in(THREADED_KINDS))["range_id"]
    wanted = report.ranges.filter(pl.col("range_id").is_in(ids.implode()))
    wide = wanted.filter(pl.col("range_id").is_in(threaded.implode()))

    def project(ops: pl.DataFrame) -> pl.DataFrame:
        return widen_projections(
            project_ranges(wanted, report.api_calls, ops),
            project_ranges(wide, report.api_calls, ops, scope="process"),
        )

    launches = match_launches(report.api_calls, report.gpu_ops)
    ops = LaunchedOps(gpu_ops=report.gpu_ops, api_calls=report.api_calls, launches=launches)
    compute = project(compute_ops)
    jobs = build_jobs(named, projections=project(report.gpu_ops), compute=compute, ops=ops)
    steps = find_steps(step_ranges, compute=compute, jobs=jobs, launched_ops=ops)
    return assign_steps(jobs, steps), steps


def analyse_reports(
    folder: Path, *, preset: str | None = None, with_steps: bool = True
) -> Iterator[AnalysedReport]:
    """Yield the analysis of each report of a run with exact clocks."""
    processes = pl.read_parquet(folder / "truth" / "processes.parquet")
    clocks = pl.read_parquet(folder / "truth" / "clocks.parquet")
    for name, zero_ns in clocks.select("report", "capture_utc_ns").sort("report").iter_rows():
        report = read_events(folder / name)
        rules = choose_rules(report.ranges, preset=preset)
        jobs, steps = analyse_report(report, rules, step_rules=None if with_steps else Rules())
        ranks = processes.filter(report=name).select("pid", "rank")
        times = [column for column in jobs.columns if column.endswith(("start_ns", "end_ns"))]
        yield AnalysedReport(
            name=name,
            report=report,
            rules=rules,
            jobs=_ranked(jobs.with_columns(pl.col(times) + zero_ns), ranks),
            steps=_ranked(steps.with_columns(pl.col("start_ns", "end_ns") + zero_ns), ranks),
        )


def _ranked(frame: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pid=pid(pl.col("process_key"))).join(ranks, on="pid", maintain_order="left")
