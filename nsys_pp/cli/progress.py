"""Progress of a command: a bar on a terminal, lines in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from nsys_pp.cli.log import Record, current_record, log
from nsys_pp.compose.progress import Progress as Callback
from nsys_pp.compose.progress import Share

_BAR_DELAY_S = 1.0
_LINE_INTERVAL_S = 5.0
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
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("reading", total=1.0)
    phase = ""

    def update(work: str, share: float) -> None:
        nonlocal phase
        if isinstance(share, Share) and share.doing != phase:
            phase = share.doing
            bar.reset(task)  # each phase has a speed of its own
        bar.update(task, description=work, completed=share)

    timer = threading.Timer(_BAR_DELAY_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield update
    finally:
        timer.cancel()
        bar.stop()


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
    """Lines about the current work, with counts and rate."""

    def __init__(self, record: Record, stderr: IO[str]) -> None:
        self._record, self._stderr = record, stderr
        self._current: tuple[str, float] = ("reading", 0.0)
        self._began_s = time.monotonic()
        self._phase: tuple[str, float, int] = ("", self._began_s, 0)  # name, begin, count at the begin
        self._has_written = False

    def update(self, work: str, share: float) -> None:
        if isinstance(share, Share) and share.doing != self._phase[0]:
            self._phase = share.doing, time.monotonic(), share.done
        self._current = work, share

    def write(self) -> None:
        self._write(*self._current, event="progress")

    def write_last(self) -> None:
        """Write the line "done", if there were others."""
        if self._has_written:
            self._write("done", 1.0, event="done")

    def _write(self, work: str, share: float, *, event: str) -> None:
        self._has_written = True
        elapsed_s = time.monotonic() - self._began_s
        facts: dict[str, str | float] = {"share": round(float(share), 4), "elapsed_s": round(elapsed_s, 1)}
        counts = ""
        if isinstance(share, Share):
            phase, since_s, first = self._phase
            rate = (share.done - first) / max(time.monotonic() - since_s, 1e-3)
            facts |= {"doing": phase, "done": share.done, "total": share.total, "rate_per_s": round(rate, 3)}
            counts = f", {share.done:,} of {share.total:,} ({rate:.2g}/s)"
        log(
            work if self._record.in_json else f"{elapsed_s:.0f} s: {work}{counts}",
            event=event,
            facts=facts,
            record=self._record,
            file=self._stderr,
        )
