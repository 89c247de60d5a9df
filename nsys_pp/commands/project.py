"""`nsys-pp project`: when every range ran on its GPU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from nsys_pp.compose.progress import Progress, tell
from nsys_pp.compose.report_view import label_reports, project_report
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.report import Report
from nsys_pp.frames.roster import Identity
from nsys_pp.model import build_report
from nsys_pp.projection.ranges import Scope
from nsys_pp.read import find_reports, read_report
from nsys_pp.roster.identity import identify
from nsys_pp.roster.roster import build_roster

PROJECT_COLUMNS = (
    *("report", "machine", "process_id", "thread_id", "device_id", "stream_id", "range_id", "parent_id"),
    *("depth", "domain", "name", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "busy_ns"),
    *("call_count", "op_count", "first_op", "last_op", "scope", "is_open"),
    *("gpu", "rank", "utc_offset_ns"),
)


def project(
    inputs: Sequence[str | Path],
    *,
    ops: tuple[str, ...] = ("kernel",),
    scope: Scope = "auto",
    per_stream: bool = False,
    nsys: str | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Project the ranges of all reports onto their GPUs.

    Args:
        inputs: Reports, directories of them, or glob patterns.
        ops: Which operations count: "kernel", "memcpy", "memset".
        scope: Whose calls count: "thread", "process" or "auto".
        per_stream: One row per stream instead of one per device.
        nsys: The nsys that exports `.nsys-rep` files.
        progress: Told what is going on.

    Returns:
        One row per range and device (and stream) with `PROJECT_COLUMNS`, reports in natural
        order, then by range_id. Times are on the clock of each report; adding `utc_offset_ns`
        makes them UTC (null where the report knows no UTC).

    Raises:
        ReportError: A report cannot be read, or is there twice, or none has both NVTX ranges and GPU
            operations.
    """
    frames: list[tuple[Identity, pl.DataFrame]] = []
    lacking: list[MissingDataError] = []
    paths = find_reports(inputs)
    for number, (path, label) in enumerate(zip(paths, label_reports(paths), strict=True)):
        tell(progress, f"projecting {path.name}", number / len(paths))
        report = build_report(
            read_report(path, need=frozenset({"ranges", "ops", "communication"}), nsys=nsys)
        )
        if missing := _find_missing(report):
            lacking.append(missing)
            continue
        projections = project_report(report, ops=ops, scope=scope, per_stream=per_stream)
        frames.append((identify(report), _describe_projections(report, label, projections)))
    if not frames:
        raise lacking[0]
    for missing in lacking:
        warnings.warn(f"{missing.message}: it has no rows", stacklevel=2)
    roster = build_roster([identity for identity, _ in frames])
    return pl.concat(_name_places(frame, roster.filter(report=at)) for at, (_, frame) in enumerate(frames))


def _describe_projections(report: Report, label: str, projections: pl.DataFrame) -> pl.DataFrame:
    """Add whose projections they are, as far as the report tells."""
    session = report.session
    threads = report.threads.select("thread_key", thread_id="tid")
    processes = report.processes.select("process_key", process_id="pid")
    epoch = session.utc_epoch_ns
    return (
        projections.join(processes, on="process_key", how="left", maintain_order="left")
        .join(threads, on="thread_key", how="left", maintain_order="left")
        .with_columns(
            report=pl.lit(label),
            utc_offset_ns=pl.lit(None if epoch is None else epoch - session.time_shift_ns, pl.Int64),
        )
    )


def _name_places(described: pl.DataFrame, roster: pl.DataFrame) -> pl.DataFrame:
    """Add machine, GPU and rank, as all reports together tell them; `PROJECT_COLUMNS`."""
    places = roster.select("process_key", "device_id", "gpu", "rank")
    return (
        described.join(places, on=["process_key", "device_id"], how="left", maintain_order="left")
        .with_columns(machine=pl.lit(roster["machine"][0]))
        .select(PROJECT_COLUMNS)
    )


def _find_missing(report: Report) -> MissingDataError | None:
    """Say what a report lacks that projection is about."""
    for frame, what in ((report.gpu_ops, "GPU operations"), (report.ranges, "NVTX ranges")):
        if frame.is_empty():
            return MissingDataError(
                f"`{report.path}` has no {what}", "record them with `nsys profile --trace cuda,nvtx`"
            )
    return None
