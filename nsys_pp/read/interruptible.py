"""Calls of libraries that hear no signal until they return, in threads that an interrupt leaves behind.

Python runs the handlers of signals in the main thread, between its own instructions: while SQLite's driver works there, Ctrl-C
is not heard, and the driver cannot be cancelled. So the main thread waits, and other threads call. They are daemons, which the
end of a program does not wait for; the command line then ends at once (`nsys_pp.cli.interrupts`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
_THREAD_NAME = "nsys-pp query"  # `nsys_pp.cli.interrupts` looks for it
_HEARD_S = 0.2  # on Windows, an interrupt is heard at the end of a wait


@contextmanager
def open_interruptibly(
    open_state: Callable[[], AbstractContextManager[S]],
) -> Iterator[Callable[[Callable[[S], Any]], Any]]:
    """Open a state, as a connection, for several calls; in the main thread, an interrupt ends the wait for a call.

    Args:
        open_state: Opens the state; the thread that opened it makes the calls and closes it.

    Yields:
        Calls a function with the state and returns its result, or raises its error, or that of `open_state`.
    """
    if threading.current_thread() is not threading.main_thread():
        with open_state() as state:
            yield lambda work: work(state)
        return
    tasks: SimpleQueue[Callable[[S], Any] | None] = SimpleQueue()
    results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def serve() -> None:
        try:
            with open_state() as state:
                while (work := tasks.get()) is not None:
                    try:
                        results.put((work(state), None))
                    except BaseException as error:
                        results.put((None, error))
        except BaseException as error:
            results.put((None, error))

    is_calling = False

    def call(work: Callable[[S], Any]) -> Any:
        nonlocal is_calling
        is_calling = True
        tasks.put(work)
        outcome = None
        while outcome is None:
            with suppress(Empty):
                outcome = results.get(timeout=_HEARD_S)
        is_calling = False
        result, error = outcome
        if error is not None:
            raise error
        return result

    thread = threading.Thread(target=serve, name=_THREAD_NAME, daemon=True)
    thread.start()
    try:
        yield call
    finally:
        tasks.put(None)
        if not is_calling:  # else an interrupt leaves the call behind
            thread.join()


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
