"""`nsys-pp info`: what reports hold, and who recorded them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys_pp.api.progress import Progress, tell
from nsys_pp.errors import NsysPPError
from nsys_pp.model import build_report
from nsys_pp.model.report import Session
from nsys_pp.project.launches import match_launches
from nsys_pp.read import find_reports, read_report
from nsys_pp.summary.contents import Contents, describe_contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What one report is, and what it holds."""

    path: Path
    session: Session
    contents: Contents


def info(
    inputs: Sequence[str | Path],
    *,
    keep_going: bool = False,
    nsys: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[Info], list[tuple[Path, NsysPPError]]]:
    """Tell what the reports hold; they need neither NVTX ranges nor GPU operations.

    Args:
        inputs: Reports, directories of them, or glob patterns.
        keep_going: Skip reports that cannot be read.
        nsys: The nsys that exports `.nsys-rep` files.
        progress: Told what is going on.

    Returns:
        The reports in natural order, and those that were skipped, each with what is wrong with it.

    Raises:
        ReportError: A report cannot be read; with `keep_going`, none can.
    """
    infos: list[Info] = []
    skipped: list[tuple[Path, NsysPPError]] = []
    paths = find_reports(inputs)
    for number, path in enumerate(paths):
        tell(progress, f"reading {path.name}", number / len(paths))
        try:
            report = build_report(read_report(path, need=frozenset({"ranges", "ops", "cpu"}), nsys=nsys))
        except NsysPPError as error:
            if not keep_going:
                raise
            skipped.append((path, error))
            continue
        contents = describe_contents(report, match_launches(report.api_calls, report.gpu_ops))
        infos.append(Info(path=path, session=report.session, contents=contents))
    if not infos:
        raise skipped[0][1]
    return infos, skipped
