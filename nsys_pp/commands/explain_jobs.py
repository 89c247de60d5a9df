"""`nsys-pp pipeline --explain-jobs`: the names of ranges, and the rule that reads each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from nsys_pp.frames.conform import ShortRepr
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.read import read_report
from nsys_pp.run.batch import Batch, Skipped
from nsys_pp.run.inputs import collect_row_counts, count_report_rows
from nsys_pp.run.options import Inputs, JobOptions, check_keywords, parse_job_options
from nsys_pp.run.report_training import project_report
from nsys_pp.tables.listings import NAME_TABLE as NAME_TABLE
from nsys_pp.training.names import choose_rules, read_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEYS = ("kind", "preset", "pattern", "name")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplainResult(ShortRepr):
    """Names of ranges of all reports.

    Attributes:
        names: One row per name (with `#` for numbers) and rule: kind, preset and pattern of the rule, number
            of ranges, and time of the GPU operations in them; names without a rule last.
        skipped: Skipped inputs, each with its error.
        row_counts: `RUN_ROW_COUNTS`: rows of all reports, used, and left out by reason.
    """

    names: pl.DataFrame
    skipped: Skipped
    row_counts: pl.DataFrame


def explain_jobs(inputs: Inputs, **options: Unpack[JobOptions]) -> ExplainResult:
    """Explain the names of ranges: jobs, steps, and unread names.

    Args:
        inputs: Reports, folders of them, or glob patterns; no parts, which do not keep all ranges.
        options: See `nsys_pp.JobOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice.
        NsysPPError: Rules cannot be read.
    """
    check_keywords(options, JobOptions)
    batch = Batch(inputs, options, with_parts=False)
    work = partial(_explain_file, rules=parse_job_options(options), nsys=batch.nsys)
    explained = batch.map("explaining", batch.paths, work)
    names = (
        pl.concat(frame for frame, _ in explained.values())
        .group_by(_KEYS)
        .agg(pl.col("range_count", "gpu_ns").sum())
        .sort(pl.col("kind").is_null(), -pl.col("gpu_ns"), -pl.col("range_count"), "name")
    )
    counts = collect_row_counts({path: counts for path, (_, counts) in explained.items()})
    return ExplainResult(names=NAME_TABLE.build(names), skipped=batch.skipped, row_counts=counts)


def _explain_file(path: Path, rules: dict[str, Any], nsys: str | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Explain the names of one report: one row per name and rule, and `ROW_COUNTS`.

    `rules` are from `parse_job_options`.
    """
    report = build_report(read_report(path, need=SURVEY_GROUPS, nsys=nsys), is_last_use=True)
    chosen = choose_rules(
        report.ranges,
        preset=rules["preset"],
        job_patterns=rules["job_patterns"] or (),
        step_patterns=rules["step_patterns"] or (),
    )
    launches = match_launches(report.api_calls, report.gpu_ops)
    projections = project_report(report, ops=("kernel",), scope="auto", launches=launches)
    busy = projections.group_by("range_id").agg(gpu_ns=pl.col("busy_ns").sum())
    names = (
        read_names(report.ranges, chosen)
        .join(busy, on="range_id", how="left")
        .group_by(_KEYS)
        .agg(range_count=pl.len().cast(pl.Int64), gpu_ns=pl.col("gpu_ns").sum())
    )
    return names, count_report_rows(report, launches, projections, "auto")
