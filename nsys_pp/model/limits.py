"""Upper limits of a report: numbers of GPUs and threads beyond these are damage, and each would cost time and memory."""

from __future__ import annotations

from nsys_pp.errors import ReportError
from nsys_pp.frames.report import Report

MOST_DEVICES = 512  # pairs of process and GPU; a machine has 16 GPUs or fewer, and a process for each
MOST_THREADS = 50_000  # with events


def check_limits(report: Report) -> Report:
    """Return the report.

    Raises:
        ReportError: It has more GPUs or threads than a recording can have.
    """
    counts = {
        "GPUs (of all processes)": (len(report.devices), MOST_DEVICES),
        "threads with events": (len(report.threads), MOST_THREADS),
    }
    for noun, (count, most) in counts.items():
        if count > most:
            raise ReportError(
                f"`{report.path}` has {count:,} {noun}; expected at most {most:,}",
                "its numbers of devices or threads are damaged: export it again",
            )
    return report
