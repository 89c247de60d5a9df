"""`nsys-pp project`: the GPU interval of each NVTX range."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Unpack

import polars as pl

from nsys_pp.errors import MissingDataError
from nsys_pp.frames.raw import SURVEY_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.frames.roster import Identity
from nsys_pp.model import build_report
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import read_report
from nsys_pp.roster.identity import identify
from nsys_pp.roster.roster import build_roster
from nsys_pp.run.inputs import Batch, Result, collect_row_counts, label_reports, skip_repeated
from nsys_pp.run.options import BatchOptions, Inputs, check_choice, check_keywords, parse_counted_ops
from nsys_pp.run.report import count_report_rows, project_report
from nsys_pp.tables.listings import define_projection_table as define_projection_table

PROJECT_COLUMNS = (
    *("report", "machine", "process_id", "thread_id", "device_id", "stream_id", "range_id", "parent_id"),
    *("depth", "domain", "name", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "busy_ns"),
    *("call_count", "op_count", "first_op", "last_op", "scope", "is_open"),
    *("gpu", "rank", "utc_offset_ns"),
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProjectResult(Result):
    """Projected ranges of all reports.

    Attributes:
        ranges: One row per range and device (and stream) with `PROJECT_COLUMNS`, reports in natural order,
            then by range_id. Times are on the clock of each report; adding `utc_offset_ns` makes them UTC
            (null where the report has no UTC).
    """

    ranges: pl.DataFrame


def project(
    inputs: Inputs,
    *,
    ops: str | Sequence[str] = ("kernel",),
    scope: Scope = "auto",
    per_stream: bool = False,
    **options: Unpack[BatchOptions],
) -> ProjectResult:
    """Project the ranges of all reports onto their GPUs.

    Args:
        inputs: Reports, folders of them, or glob patterns.
        ops: GPU operations that ranges are projected onto: "kernel", "memcpy", "memset", or "all".
        scope: Launches that count for a range: "thread", "process" or "auto".
        per_stream: One row per stream instead of one per device.
        options: See `nsys_pp.BatchOptions`.

    Raises:
        ReportError: A report cannot be read, or is named twice, or none has both NVTX ranges and GPU
            operations.
    """
    check_keywords(options, BatchOptions)
    check_choice("scope", scope, ("thread", "process", "auto"))
    counted = parse_counted_ops(ops)
    batch = Batch(inputs, options, with_parts=False)
    work = partial(
        _project_file,
        labels=dict(zip(batch.paths, label_reports(batch.paths), strict=True)),
        ops=counted,
        scope=scope,
        per_stream=per_stream,
        nsys=batch.nsys,
    )
    projected = batch.map("projecting", batch.paths, work)
    lacking = [report for report in projected.values() if isinstance(report, MissingDataError)]
    found = {path: report for path, report in projected.items() if not isinstance(report, MissingDataError)}
    if not found:
        raise lacking[0]
    for missing in lacking:
        warnings.warn(f"{missing.message}: it has no rows", stacklevel=2)
    counts = collect_row_counts({path: counts for path, (_, _, counts) in found.items()})
    return ProjectResult(ranges=_join(found, batch), skipped=batch.skipped, row_counts=counts)


def _project_file(
    path: Path,
    labels: Mapping[Path, str],
    ops: tuple[str, ...],
    scope: Scope,
    per_stream: bool,
    nsys: str | None,
) -> tuple[Identity, pl.DataFrame, pl.DataFrame] | MissingDataError:
    """Project the ranges of one report, with its `ROW_COUNTS`.

    An error is returned where it has none, or no operations.
    """
    report = build_report(read_report(path, need=SURVEY_GROUPS, nsys=nsys), is_last_use=True)
    for frame, content in ((report.gpu_ops, "GPU operations"), (report.ranges, "NVTX ranges")):
        if frame.is_empty():
            return MissingDataError(
                f"`{report.path}` has no {content}",
                "`nsys profile --trace cuda,nvtx` records those of a program that has any",
            )
    launches = match_launches(report.api_calls, report.gpu_ops)
    projections = project_report(report, ops=ops, scope=scope, per_stream=per_stream, launches=launches)
    counts = count_report_rows(report, launches, projections, scope)
    return identify(report), _add_identity(report, labels[path], projections), counts


def _join(
    projected: Mapping[Path, tuple[Identity, pl.DataFrame, pl.DataFrame]], batch: Batch
) -> pl.DataFrame:
    reports = list(projected.values())
    kept = skip_repeated([identity for identity, *_ in reports], list(projected), batch)
    different = [reports[index] for index in kept]
    roster = build_roster([identity for identity, *_ in different])
    frames = []
    for number, (_, frame, _) in enumerate(different):
        own = roster.filter(report=number)
        devices = own.select("process_key", "device_id", "gpu", "rank")
        located = frame.join(devices, on=["process_key", "device_id"], how="left", maintain_order="left")
        frames.append(located.with_columns(machine=pl.lit(own["machine"][0])).select(PROJECT_COLUMNS))
    return pl.concat(frames)


def _add_identity(report: Report, label: str, projections: pl.DataFrame) -> pl.DataFrame:
    threads = report.threads.select("thread_key", thread_id="tid")
    processes = report.processes.select("process_key", process_id="pid")
    epoch = report.session.utc_epoch_ns
    return (
        projections.join(processes, on="process_key", how="left", maintain_order="left")
        .join(threads, on="thread_key", how="left", maintain_order="left")
        .with_columns(
            report=pl.lit(label),
            utc_offset_ns=pl.lit(None if epoch is None else epoch - report.session.time_shift_ns, pl.Int64),
        )
    )
