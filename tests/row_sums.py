"""The sums of the counts of rows: read = rows of the file = used + left out, and used = rows of the report's frames."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import polars as pl

from nsys_pp.frames.raw import ALL_GROUPS, ROW_COUNTS, SHOW_GROUPS
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.model.activities import CALL_STACKS, SAMPLES, STATES
from nsys_pp.read import read_report


def _count_kind(kind: str) -> Callable[[Report], int]:
    return lambda report: report.gpu_ops.filter(pl.col("kind") == kind).height


def count_rows(path: Path, table: str) -> int | None:
    """Count the rows of a table by SQLite's own count; None where SQLite cannot."""
    with suppress(sqlite3.Error, UnicodeError), closing(sqlite3.connect(path)) as connection:
        quoted = table.replace('"', '""')
        return int(connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])
    return None


# Rows of the frames of a report that come from tables of events, by the tables. Tables that only name or identify
# others have no rows of their own in a frame.
FRAMES: dict[tuple[str, ...], Callable[[Report], int]] = {
    ("calls",): lambda report: report.api_calls.height,
    ("kernels",): _count_kind("kernel"),
    ("copies", "decompressions"): _count_kind("memcpy"),
    ("sets",): _count_kind("memset"),
    ("graphs",): _count_kind("graph"),
    ("synchronizations", "cuda_events"): lambda report: report.stream_calls.height,
    ("mpi_messages", "mpi_collectives"): lambda report: report.mpi_calls.height,
    ("os_calls",): lambda report: report.os_calls.height,
    ("cuda_memory",): lambda report: report.memory_events.height,
    ("overheads", "cuda_overheads"): lambda report: report.overheads.height,
    ("diagnostics",): lambda report: int(report.diagnostics["count"].sum()),
}
WITHOUT_FRAMES = {  # looked up, or paired: their rows are in no frame one by one
    *(
        "nvtx",
        "thread_switches",
        "payload_fields",
        "mpi_communicators",
        "strings",
        "processes",
        "thread_names",
    ),
    *(
        "gpus",
        "cuda_gpus",
        "cuda_devices",
        "contexts",
        "streams",
        "stream_names",
        "session",
        "capture",
        "ranks",
    ),
}


def check_row_sums(path: Path) -> Report:
    """Check the counts of all tables of a report; SQLite counts the rows of the file."""
    report = build_report(read_report(path))
    counts = report.row_counts
    assert counts.schema == ROW_COUNTS
    assert counts["row_count"].min() is None or counts["row_count"].min() >= 0  # type: ignore[operator]
    of_report = counts.filter(stage="report")
    read = of_report.group_by("table", "source").agg(pl.col("row_count").sum())
    for table, source, count in read.rows():
        in_file = count_rows(path, source)
        assert in_file is None or in_file == count, (table, in_file, count)
    used = dict(of_report.filter(pl.col("reason").is_null()).select("table", "row_count").rows())
    for tables, height in FRAMES.items():
        assert sum(used.get(table, 0) for table in tables) == height(report), tables
    assert used.keys() <= {table for tables in FRAMES for table in tables} | WITHOUT_FRAMES
    _check_events(path, report, used.get("nvtx", 0))
    return report


def check_shown_sums(path: Path) -> Report:
    """Check the counts of the tables that a trace has on request; other sums are those of `check_row_sums`."""
    report = build_report(read_report(path, need=ALL_GROUPS | SHOW_GROUPS))
    counts = report.row_counts.filter(pl.col("stage") == "report")
    for table, source, count in counts.group_by("table", "source").agg(pl.col("row_count").sum()).rows():
        in_file = count_rows(path, source)
        assert in_file is None or in_file == count, (table, in_file, count)
    used = counts.filter(pl.col("reason").is_null())
    of_network = pl.col("table").is_in(["NET_NIC_METRIC", "NET_IB_SWITCH_METRIC"])
    drawn = used.filter(pl.col("table") == pl.col("source"), ~of_network)  # tables that share a frame
    shown = dict(report.activities["row"].value_counts().rows())
    assert shown.pop(SAMPLES, 0) == used.filter(table="samples")["row_count"].sum()
    shown.pop(STATES, None)  # of pairs of switches
    shown.pop(CALL_STACKS, None)  # calls, again
    records = int(report.activities["is_origin"].sum() or 0)  # of CUDA events, among the synchronizations
    assert drawn["row_count"].sum() == sum(shown.values()) - records
    return report


def _check_events(path: Path, report: Report, used: int) -> None:
    """Check that used NVTX events are ranges, marks, or names of domains and categories."""
    names = used - report.ranges.height - report.marks.height
    naming = read_report(path, need=frozenset({"ranges"}))["nvtx"].filter(
        pl.col("kind").is_in(["domain", "category"]) & pl.col("thread").is_not_null()
    )
    assert 0 <= names <= naming.height
