"""Executors for concurrent work on arrays: threads for many rows, immediate execution for few."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

# Up to this number of rows, starting threads costs more than it saves.
_FEW_ROWS = 200_000


def open_executor(row_count: int, *, threads: int = 2) -> Executor:
    """Open an executor of threads: numpy releases the interpreter lock while it works on many rows.

    Args:
        row_count: Approximate number of rows.
        threads: Maximum number of threads.
    """
    if row_count < _FEW_ROWS:
        return ImmediateExecutor()
    return ThreadPoolExecutor(threads)


def count_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ImmediateExecutor(Executor):
    """Executor that runs tasks when they are submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the task; the future is done, with the result or the error."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
