"""Ctrl-C and SIGTERM: clean up and end the process, by force if necessary."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # exit status of a program that Ctrl-C ended, as in shells

_PATIENCE_S = 10.0
_SOON_S = 0.02
_received = threading.Event()
_endings = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_cause: list[int] = []  # signals, the first one first


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the first Ctrl-C, and end the process at the second.

    So do SIGTERM, which batch systems send some seconds before SIGKILL, and SIGHUP where it is not ignored;
    further ones are ignored, since batch systems send them to all processes of a job, also through their
    shell.

    Python may raise between the acquisition of a lock and the `with` that releases it, so that a
    pool of threads waits forever: after some seconds, an alarm ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    _cause.clear()
    before = {signal.SIGINT: signal.signal(signal.SIGINT, _unwind)}
    for ending in map(signal.Signals.__getitem__, _endings):
        if signal.getsignal(ending) == signal.SIG_DFL:
            before[ending] = signal.signal(ending, _unwind)
    hook = sys.unraisablehook
    sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        _set_alarm(0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error; the interrupted code may raise another one."""
    if _received.is_set():
        return True
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def describe_end() -> tuple[int, str]:
    """Return the exit status of an interrupted program, as in shells, and its last words."""
    if not _cause or _cause[0] == signal.SIGINT:
        return INTERRUPTED, "Interrupted"
    return 128 + _cause[0], "Terminated"


def _unwind(number: int, _: object) -> None:
    _received.set()
    _cause.append(number)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for ending in map(signal.Signals.__getitem__, _endings):
        if signal.getsignal(ending) == _unwind:
            signal.signal(ending, signal.SIG_IGN)
    _set_alarm(_PATIENCE_S)
    raise KeyboardInterrupt


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that occurred where no exception can be raised, in a callback of a library."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
    elif hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _unwind_late)
        _set_alarm(_SOON_S)


def _unwind_late(*_: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _set_alarm(_PATIENCE_S)
    raise KeyboardInterrupt


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, seconds)
