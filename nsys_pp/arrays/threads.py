"""Work beside other work: on threads where that pays, at once where starting threads would take longer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

# Up to so many rows a thread is started no sooner than its work is done, and threads get in each other's way.
_FEW_ROWS = 200_000


def open_executor(row_count: int, *, threads: int = 2) -> Executor:
    """Open where to work beside: numpy leaves the interpreter to other threads while it works on many rows.

    Args:
        row_count: About how many rows are worked on in all.
        threads: At most so many at a time.
    """
    return ImmediateExecutor() if row_count < _FEW_ROWS else ThreadPoolExecutor(threads)


class ImmediateExecutor(Executor):
    """Does everything when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it now; the future is done."""
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
