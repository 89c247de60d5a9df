"""Progress while traces are written: the reports and rows that are written already."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate

from msgspec.structs import replace

from nsys_pp.compose.progress import Progress, Share, report_progress
from nsys_pp.write.perfetto.trace import PlacedReport, Source
from nsys_pp.write.spool import OpenBlocks


def watch_writing(
    progress: Progress | None, activity: str, traces: Sequence[Sequence[PlacedReport]]
) -> list[list[PlacedReport]]:
    """Return the contents of traces that report progress as their blocks are opened to be written, in this order.

    Args:
        progress: The callback.
        activity: The current activity.
        traces: Contents of one trace or several.
    """
    reports = [report for trace in traces for report in trace]
    rows = [sum(subtrack.rows for subtrack in report.drawn_subtracks()) for report in reports]
    before = [0, *accumulate(rows)]
    watched = (
        replace(
            report,
            open_blocks=_announce(
                report.open_blocks,
                progress,
                activity,
                Share.of(number, len(reports), doing="writing", value=before[number] / max(before[-1], 1)),
            ),
        )
        for number, report in enumerate(reports)
    )
    return [[next(watched) for _ in trace] for trace in traces]


def _announce(open_blocks: OpenBlocks, progress: Progress | None, activity: str, share: Share) -> OpenBlocks:
    def open_and_report() -> AbstractContextManager[Source]:
        report_progress(progress, activity, share)
        return open_blocks()

    return open_and_report
