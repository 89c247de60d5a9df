"""Calls of libraries that hear no signal until they return, in threads that an interrupt leaves behind.

Python runs the handlers of signals in the main thread, between its own instructions: while SQLite's driver works there, Ctrl-C
is not heard, and the driver cannot be cancelled. So the main thread waits, and other threads call. They are daemons, which the
end of a program does not wait for; the command line then ends at once (`nsys_pp.cli.interrupts`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
_THREAD_NAME = "nsys-pp query"  # `nsys_pp.cli.interrupts` looks for it
_HEARD_S = 0.2  # on Windows, an interrupt is heard at the end of a wait


def map_interruptibly(
    work: Callable[[S, T], R],
    items: Sequence[T],
    *,
    open_state: Callable[[], AbstractContextManager[S]],
    threads: int,
) -> list[R]:
    """Call a function with each item; in the main thread, an interrupt ends the wait for the calls.

    Args:
        work: The function, called with the state of its thread and an item.
        items: The items; calls begin in their order.
        open_state: Opens the state of a thread, as a connection.
        threads: Number of threads; with 1, the calls are in this thread unless it is the main thread.

    Returns:
        Results in order of `items`.

    Raises:
        BaseException: The first that was raised in a thread; no call is running any more.
    """
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    next_index = count()

    def serve() -> None:
        try:
            with open_state() as state:
                while not errors and (index := next(next_index)) < len(items):
                    results[index] = work(state, items[index])
        except BaseException as error:
            errors.append(error)

    if threads == 1 and threading.current_thread() is not threading.main_thread():
        serve()
    else:
        _wait_for([threading.Thread(target=serve, name=_THREAD_NAME, daemon=True) for _ in range(threads)])
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(items))]


def _wait_for(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_HEARD_S)
