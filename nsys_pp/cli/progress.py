"""Progress of a command: a bar on a terminal, lines in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from nsys_pp.cli.log import Record, current_record, log
from nsys_pp.progress import Progress as Callback
from nsys_pp.progress import Share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

_BAR_DELAY_S = 1.0
_LINE_INTERVAL_S = 5.0
_LEAST_SHARE = 0.02  # of a phase, before the time that is left is estimated
_WIDE = 120  # characters
_INTERVAL_VARIABLE = "NSYS_PP_LOG_SECONDS"


@contextmanager
def show_progress() -> Iterator[Callback]:
    """Yield the callback that receives the current work and its finished share.

    On a terminal, a bar appears on stderr after a second. Elsewhere a line is written every five
    seconds, or every `$NSYS_PP_LOG_SECONDS`; 0 writes no lines.
    """
    record = current_record()
    show = _show_bar() if sys.stderr.isatty() and not record.in_json else _write_lines(record, sys.stderr)
    with show as show_share:

        def report_share(work: str, share: float) -> None:
            record.enter(share.doing if isinstance(share, Share) else work.split(" ", 1)[0])
            show_share(work, share)

        try:
            yield report_share
        finally:
            record.enter(None)


@contextmanager
def _show_bar() -> Iterator[Callback]:
    from rich.console import Console

    bar = build_bar(Console(stderr=True))
    task = bar.add_task("reading", total=1.0, counts="")
    phase = ("", 0)

    def update(work: str, share: float) -> None:
        nonlocal phase
        if isinstance(share, Share) and (share.doing, share.total) != phase:
            phase = share.doing, share.total
            bar.reset(task)  # each phase has a speed of its own
        activity, _, counts = work.partition(": ")
        bar.update(task, description=activity, counts=counts, completed=share)

    timer = threading.Timer(_BAR_DELAY_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        bar.stop()


def build_bar(console: Console) -> Bar:
    """Build a bar of tasks that have the field `counts`.

    On a narrow console it is short and has no elapsed time; the activity, with the name of a report, is cut
    to the rest of the width. Counts and the time left are not cut.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class Activity(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    is_wide = console.width >= _WIDE
    times = Column(no_wrap=True, min_width=len("0:00:00"))
    return Progress(
        SpinnerColumn(),
        Activity(),
        TextColumn("{task.fields[counts]}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=30 if is_wide else 8, table_column=Column(no_wrap=True)),
        *([TimeElapsedColumn(times), TextColumn("elapsed,")] if is_wide else []),
        TimeRemainingColumn(table_column=times),
        TextColumn("left", table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
    )


@contextmanager
def _write_lines(record: Record, stderr: IO[str]) -> Iterator[Callback]:
    interval_s = _read_interval()
    lines = _ProgressLines(record, stderr)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(interval_s):
            lines.write()

    thread = threading.Thread(target=write, daemon=True)
    if interval_s > 0:
        thread.start()
    try:
        yield lines.update
        stop.set()
        lines.write_last()
    finally:
        stop.set()
        if interval_s > 0:
            thread.join()


def _read_interval() -> float:
    with suppress(KeyError, ValueError):
        return min(max(0.0, float(os.environ[_INTERVAL_VARIABLE])), threading.TIMEOUT_MAX)
    return _LINE_INTERVAL_S


class _ProgressLines:
    """Lines about the current work.

    Counts and rate of reports, or the share of a single report, and the time left.
    """

    def __init__(self, record: Record, stderr: IO[str]) -> None:
        self._record, self._stderr = record, stderr
        self._current: tuple[str, float] = ("reading", 0.0)
        self._began_s = time.monotonic()
        self._phase: tuple[str, float, int] = ("", self._began_s, 0)  # name, begin, count at the begin
        self._total = 0  # of the phase: an overview and the traces of its folder are counted apart
        self._has_written = False

    def update(self, work: str, share: float) -> None:
        if isinstance(share, Share):
            phase, _, first = self._phase
            if share.doing != phase or share.total != self._total or share.done < first:
                self._phase = share.doing, time.monotonic(), share.done
                self._total = share.total
        self._current = work, share

    def write(self) -> None:
        self._write(*self._current, event="progress")

    def write_last(self) -> None:
        """Write the line "done", if there were others."""
        if self._has_written:
            self._write("done", 1.0, event="done")

    def _write(self, work: str, share: float, *, event: str) -> None:
        self._has_written = True
        now_s = time.monotonic()
        elapsed_s = now_s - self._began_s
        facts: dict[str, str | float] = {"share": round(float(share), 4), "elapsed_s": round(elapsed_s, 1)}
        counts = ""
        if isinstance(share, Share):
            phase, since_s, first = self._phase
            rate = (share.done - first) / max(now_s - since_s, 1e-3)
            facts |= {"doing": phase, "done": share.done, "total": share.total, "rate_per_s": round(rate, 3)}
            counts = (
                f", {share.done:,} of {share.total:,} ({_format_rate(rate)}/s)" if share.total > 1 else ""
            )
            if (left_s := estimate_left(share, now_s - since_s)) is not None:
                facts["left_s"] = round(left_s, 1)
                counts += f", {share:.0%}" if share.total == 1 else ""
                counts += f", about {left_s:.0f} s left"
        log(
            work if self._record.in_json else f"{elapsed_s:.0f} s: {work}{counts}",
            event=event,
            facts=facts,
            record=self._record,
            file=self._stderr,
        )


def _format_rate(rate: float) -> str:
    """Format a rate with two digits, or without a fraction.

    >>> _format_rate(0.5), _format_rate(7.25), _format_rate(231.6)
    ('0.5', '7.2', '232')
    """
    return f"{rate:.2g}" if rate < 99.5 else f"{rate:,.0f}"


def estimate_left(share: float, elapsed_s: float) -> float | None:
    """Estimate the time that is left of a phase, in s, from its duration so far.

    None: too early, or at its end.

    >>> estimate_left(0.25, 5.0), estimate_left(0.001, 5.0), estimate_left(1.0, 5.0)
    (15.0, None, None)
    """
    return elapsed_s * (1 - share) / share if _LEAST_SHARE <= share < 1 else None
