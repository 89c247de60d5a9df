"""Progress while traces are written: the reports and rows that are written already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

from msgspec.structs import replace

from nsys_pp.compose.progress import Progress, Share, report_progress
from nsys_pp.write.perfetto.trace import PlacedReport

_Blocks = TypeVar("_Blocks")


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

    def watch(number: int, report: PlacedReport) -> PlacedReport:
        value = before[number] / max(before[-1], 1)
        share = Share.of(number, len(reports), doing="writing", value=value)
        return replace(
            report,
            open_blocks=_announce(report.open_blocks, progress, activity, share),
            take_unpacked=_announce(report.take_unpacked, progress, activity, share),
        )

    watched = (watch(number, report) for number, report in enumerate(reports))
    return [[next(watched) for _ in trace] for trace in traces]


def _announce(
    use: Callable[[], _Blocks], progress: Progress | None, activity: str, share: Share
) -> Callable[[], _Blocks]:
    def report_and_use() -> _Blocks:
        report_progress(progress, activity, share)
        return use()

    return report_and_use
