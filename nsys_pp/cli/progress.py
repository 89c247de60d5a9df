"""What is told while work takes long: a bar on a terminal, and lines in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nsys_pp.cli.log import Record, current_record, log
from nsys_pp.commands import Progress as Callback
from nsys_pp.compose.progress import Share

_PATIENCE_S = 1.0
_LINE_S = 5.0  # before the first line, and between lines
_LINE_VARIABLE = "NSYS_PP_LOG_SECONDS"


@contextmanager
def show_progress() -> Iterator[Callback]:
    """Yield what to tell of the work.

    On a terminal, a bar appears on stderr after a second; elsewhere, a line every five, or every
    `$NSYS_PP_LOG_SECONDS`.
    """
    record = current_record()
    show = _show_bar() if sys.stderr.isatty() and not record.in_json else _write_lines(record, sys.stderr)
    with show as tell:

        def follow(what: str, share: float) -> None:
            record.enter(share.doing if isinstance(share, Share) else what.split(" ", 1)[0])
            tell(what, share)

        try:
            yield follow
        finally:
            record.enter(None)


@contextmanager
def _show_bar() -> Iterator[Callback]:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("reading", total=1.0)
    timer = threading.Timer(_PATIENCE_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda what, share: bar.update(task, description=what, completed=share)
    finally:
        timer.cancel()
        bar.stop()


@contextmanager
def _write_lines(record: Record, stderr: IO[str]) -> Iterator[Callback]:
    lines = _Lines(record, stderr)
    thread = threading.Thread(target=lines.write, daemon=True)
    thread.start()
    try:
        yield lines.tell
        lines.end()
    finally:
        lines.stop()
        thread.join()


class _Lines:
    """Writes what was told last, now and then."""

    def __init__(self, record: Record, stderr: IO[str]) -> None:
        self._record, self._stderr = record, stderr
        self._over = threading.Event()
        self._told: tuple[str, float] = ("reading", 0.0)
        self._began = time.monotonic()
        self._phase: tuple[str, float, int] = ("", self._began, 0)  # since when, and what was done then
        self._has_written = False
        self._every_s = _LINE_S
        with suppress(KeyError, ValueError):
            self._every_s = max(0.01, float(os.environ[_LINE_VARIABLE]))

    def tell(self, what: str, share: float) -> None:
        if isinstance(share, Share) and share.doing != self._phase[0]:
            self._phase = share.doing, time.monotonic(), share.done
        self._told = what, share

    def write(self) -> None:
        while not self._over.wait(self._every_s):
            self._write(*self._told)

    def end(self) -> None:
        """Write the last line, if there were others."""
        self._over.set()
        if self._has_written:
            self._write("done", 1.0)

    def stop(self) -> None:
        self._over.set()

    def _write(self, what: str, share: float) -> None:
        self._has_written = True
        elapsed_s = time.monotonic() - self._began
        facts: dict[str, str | float] = {"share": round(float(share), 4), "elapsed_s": round(elapsed_s, 1)}
        counts = ""
        if isinstance(share, Share):
            doing, since, first = self._phase
            rate = (share.done - first) / max(time.monotonic() - since, 1e-3)
            facts |= {"doing": doing, "done": share.done, "total": share.total, "rate_per_s": round(rate, 3)}
            counts = f", {share.done:,} of {share.total:,} ({rate:.2g}/s)"
        log(
            f"{elapsed_s:.0f} s: {what}{counts}" if not self._record.in_json else what,
            event="progress" if what != "done" else "done",
            facts=facts,
            record=self._record,
            file=self._stderr,
        )
