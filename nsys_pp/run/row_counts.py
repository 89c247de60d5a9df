"""Counts of rows of all reports of a run, for results and for the metadata of traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys_pp.frames.ids import describe_path
from nsys_pp.frames.part import Part
from nsys_pp.frames.raw import RUN_ROW_COUNTS
from nsys_pp.frames.report import Report
from nsys_pp.projection.ranges import Scope
from nsys_pp.projection.row_counts import count_projected
from nsys_pp.read.parts import concat_frames

ATTRIBUTE = "rows."
"""Prefix of the metadata of a trace about the rows of a report."""
_DRAWN = ("nvtx", "calls", "kernels", "copies", "sets", "graphs", "decompressions", "ranges", "gpu_ops")


def count_report_rows(
    report: Report, launches: pl.DataFrame, projections: pl.DataFrame | None, scope: Scope
) -> pl.DataFrame:
    """Count the rows of a report up to its projections (`ROW_COUNTS`).

    Args:
        report: Read with ranges and operations.
        launches: `LAUNCHES` of all its operations.
        projections: Its `PROJECTIONS`; None: not computed.
        scope: Launches that counted.
    """
    projected = count_projected(report.ranges, report.gpu_ops, launches, projections, scope)
    return report.row_counts.vstack(projected)


def collect_row_counts(counts: Mapping[Path, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the `ROW_COUNTS` of reports to `RUN_ROW_COUNTS`."""
    frames = [frame.with_columns(report=pl.lit(describe_path(path))) for path, frame in counts.items()]
    return pl.concat(frames) if frames else RUN_ROW_COUNTS.to_frame()


def collect_parts(parts: Sequence[Part], paths: Sequence[Path]) -> pl.DataFrame:
    """Concatenate the counts of parts to `RUN_ROW_COUNTS`.

    Args:
        parts: Read with the frame "row_counts".
        paths: Path of each, as named or found.
    """
    if not parts:
        return RUN_ROW_COUNTS.to_frame()
    frame, lengths = concat_frames([part.frames for part in parts], "row_counts")
    names = pl.Series("report", [describe_path(path) for path in paths], dtype=pl.String)
    numbers = pl.Series([n for n, length in enumerate(lengths) for _ in range(length)], dtype=pl.UInt32)
    return frame.with_columns(names.gather(numbers))


def describe_rows(counts: pl.DataFrame) -> dict[str, str]:
    """Describe the drawn rows of each report in a line, by its path: "nvtx 166 = 100 used + 66 without a start; kernels ...".

    A part is made of more tables than a trace, and has the same line.

    Args:
        counts: `RUN_ROW_COUNTS`.
    """
    tables: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for stage, table, _, reason, count, report in counts.filter(pl.col("table").is_in(_DRAWN)).rows():
        name = table if stage == "report" else f"{table} ({stage})"
        tables.setdefault(report, {}).setdefault(name, []).append((reason or "used", count))
    return {
        report: "; ".join(
            f"{name} {sum(count for _, count in rows)} = {' + '.join(f'{count} {word}' for word, count in rows)}"
            for name, rows in of_report.items()
        )
        for report, of_report in tables.items()
    }
