"""Reading: report files are found, exported if needed, and read as raw frames."""

from __future__ import annotations

from pathlib import Path

from nsys_pp.errors import ReportError
from nsys_pp.frames.raw import ALL_GROUPS, Group, RawReport
from nsys_pp.read.parts import check_part_blocks, is_part, open_part_blocks, read_part
from nsys_pp.read.readers import find_reader, find_reports

__all__ = [
    "check_part_blocks",
    "find_reports",
    "inspect_report",
    "is_part",
    "open_part_blocks",
    "read_part",
    "read_report",
]


def read_report(
    path: str | Path,
    *,
    need: frozenset[Group] = ALL_GROUPS,
    nsys: str | Path | None = None,
) -> RawReport:
    """Read one report of any kind; neither the report nor its folder is written to.

    Args:
        path: A SQLite export, a directory that `nsys export --type parquetdir` or `arrowdir` made,
            or a `.nsys-rep` or `.qdrep`, which is exported into a cache first.
        need: Groups of tables and columns to read in addition to the session.
        nsys: Program that exports; found by `$NSYS_PP_NSYS` or on PATH if None.

    Raises:
        ReportError: The report is missing, unreadable, incomplete, or of an unsupported form.
        NsysNotFoundError: The report must be exported first, and nsys was not found.
    """
    path = Path(path)
    if is_part(path):
        raise ReportError(
            f"`{path}` is a part, by its name: made for `nsys-pp merge`",
            "name the report that it was extracted from",
        )
    return find_reader(path).read(path, need, nsys)


def inspect_report(path: Path) -> None:
    """Read as little as it takes to refuse a path that is not a report.

    Of a report that must be exported, this says only whether it is empty.

    Args:
        path: As for `read_report`, and no part.

    Raises:
        ReportError: As for `read_report`.
    """
    find_reader(path).inspect(path)
