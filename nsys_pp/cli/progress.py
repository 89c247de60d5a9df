"""A line on the terminal while work takes long; nothing anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nsys_pp.api import Progress as Callback

_PATIENCE_S = 1.0


@contextmanager
def show_progress() -> Iterator[Callback | None]:
    """Yield what to tell of the work; a bar appears on stderr after a second, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
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
