"""Memory limit of a whole command: what is made of all reports, after they are processed, counts too.

While a pool runs, it ends the process of the largest report instead (`nsys_pp.executors.limits`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.process_memory import measure_tree

_INTERVAL_S = 0.2  # between two measurements
_PATIENCE_S = 3.0  # of a library that does not hear the stop
_running_pools: list[None] = []


@contextmanager
def enforced_by_pool() -> Iterator[None]:
    """Leave the limit to a pool of processes."""
    _running_pools.append(None)
    try:
        yield
    finally:
        _running_pools.pop()


@contextmanager
def guard_memory(
    limit_bytes: int | None,
    *,
    stop: Callable[[NsysPPError], None],
    end: Callable[[NsysPPError], None],
) -> Iterator[None]:
    """Measure the memory of this process and all below it five times a second (Linux; elsewhere nothing happens).

    Args:
        limit_bytes: The limit; None: no limit.
        stop: Stops the work in the `with` block, called once from another thread.
        end: Ends the process, called where the work has not stopped some seconds later.
    """
    if limit_bytes is None:
        yield
        return
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(_INTERVAL_S):
            used = 0 if _running_pools else measure_tree(os.getpid())
            if used > limit_bytes:
                error = run_memory_error(used, limit_bytes)
                stop(error)
                if not is_done.wait(_PATIENCE_S):
                    end(error)
                return

    watcher = threading.Thread(target=watch, name="nsys-pp memory", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()


def run_memory_error(used_bytes: int, limit_bytes: int) -> NsysPPError:
    """Return the error of a run that exceeds the limit without a report in work."""
    return NsysPPError(
        f"the run needs more memory than `--memory` allows: it was stopped at {used_bytes / 1e9:.2f} GB, and"
        f" {limit_bytes / 1e9:.2f} GB are allowed",
        "raise `--memory`, name fewer reports, or draw less with `--detail`",
    )
