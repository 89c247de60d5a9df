"""Memory of one large report: its columns are moved to a scratch between stages, and freed memory is returned."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.memory import return_freed
from nsys_pp.arrays.scratch import drop_pages, move_array, page_arrays
from nsys_pp.arrays.scratch_frames import move_frame
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report
from nsys_pp.model import build_report
from nsys_pp.read import read_report

FEW_ROWS = 200_000
"""Rows of a report, up to which its memory is negligible: some 60,000 kernels."""
_LARGE_ROWS = 2_000_000  # some 600,000 kernels: more would take a tenth more memory
MANY_ROWS = 20_000_000
"""Rows of a report, beyond which memory counts more than time: some 6 million kernels."""
_SHARED = ("range_id", "thread_key", "start_ns", "end_ns", "process_key", "parent_id")  # with RANGES


def free_memory(row_count: int, *, large_rows: int = _LARGE_ROWS) -> None:
    """Return memory to the system that no stage of a report uses any more, and pages of columns in the scratch.

    Args:
        row_count: Of the tables of the report. With few, nothing is done: a report leaves less than a call takes. Freed memory
            is kept up to `large_rows`: the next stage would request the same pages again, with a page fault for each.
        large_rows: Of a large report.
    """
    if row_count > large_rows:
        return_freed()
    if row_count >= FEW_ROWS:
        drop_pages()


def read_moved(path: Path, *, need: frozenset[Group], nsys: str | None) -> Report:
    """Read a report, and move its large columns to the scratch; working arrays of one of many rows are there, too.

    Args:
        path: The report.
        need: Groups of data to read.
        nsys: Program that exports `.nsys-rep` files.

    Raises:
        ReportError: It cannot be read.
    """
    raw = read_report(path, need=need, nsys=nsys)
    if sum(raw.recorded.values()) > MANY_ROWS:
        page_arrays()
    return move_report(build_report(raw, is_last_use=True))


def move_report(report: Report) -> Report:
    """Move large columns of a report to the scratch; raw columns are there already."""
    return replace(
        report,
        gpu_ops=move_frame(report.gpu_ops),
        api_calls=move_frame(report.api_calls),
        ranges=move_frame(report.ranges),
        op_details=replace(report.op_details, row=move_array(report.op_details.row)),
    )


def move_projections(projections: pl.DataFrame) -> pl.DataFrame:
    """Move large columns of `PROJECTIONS` to the scratch that are not shared with ranges."""
    return move_frame(projections, [name for name in projections.columns if name not in _SHARED])
