"""Work in processes of our own, each on one item at a time.

The pools of the standard library end altogether when the system kills one of their processes (no
memory left), or wait for ever for the rest of what it was sending. Here each process has a pipe of
its own: its end tells which item is concerned, and the others go on.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.executor import Outcome, batch
from nsys_pp.executors.resources import count_cores

_SPAWN = get_context("spawn")  # a fork of a process with threads, as polars has, may wait for ever
_PATIENCE_S = 3.0
_THREADS_VARIABLE = "POLARS_MAX_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExecutor:
    """Works in up to `jobs` processes."""

    jobs: int

    @property
    def is_local(self) -> bool:
        """Never."""
        return False

    def map(self, work: Callable[[Path], Any], items: Sequence[Path]) -> Generator[Outcome, None, None]:
        """Work on all items; one whose process is killed is tried once more, alone.

        So that what the others need does not add up, there is half as many processes from then on.
        """
        if not items:
            return
        crew = _Crew(work, items, most=min(self.jobs, len(items)))
        with _share_cores(crew.most):
            try:
                yield from crew.work()
            finally:
                crew.dismiss()


@dataclass(slots=True)
class _Crew:
    """Processes at work."""

    task: Callable[[Path], Any]
    items: Sequence[Path]
    most: int
    waiting: deque[int] = field(init=False)
    again: deque[int] = field(default_factory=deque)  # whose process was killed
    busy: dict[Connection, tuple[BaseProcess, int]] = field(default_factory=dict)
    idle: dict[Connection, BaseProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.items)))

    def work(self) -> Iterator[Outcome]:
        while self.waiting or self.busy or self.again:
            while self.waiting and len(self.busy) < self.most:
                self._give(self.waiting.popleft())
            if not self.busy:
                self.most = 1
                self.waiting.append(self.again[0])
                continue
            for ready in wait(list(self.busy)):
                done = self._take(ready)  # type: ignore[arg-type]
                if done is not None:
                    yield done

    def _give(self, place: int) -> None:
        while True:
            connection, process = self.idle.popitem() if self.idle else self._hire()
            with suppress(OSError):  # it was killed while it had nothing to do
                connection.send_bytes(pickle.dumps((place, self.items[place])))
                self.busy[connection] = process, place
                return
            _end(connection, process)

    def _hire(self) -> tuple[Connection, BaseProcess]:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs, pickle.dumps(self.task)), daemon=True)
        with _without_interrupts():
            process.start()
        theirs.close()
        return ours, process

    def _take(self, connection: Connection) -> Outcome | None:
        """Take what a process sends; None where the process is gone and its item is tried once more."""
        process, place = self.busy.pop(connection)
        try:
            done: Outcome = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            _end(connection, process)
            if place not in self.again:
                self.again.append(place)
                self.most = max(1, self.most // 2)
                return None
            done = Outcome(place=place, error=_killed_error(self.items[place], process))
        else:
            self.idle[connection] = process
        with suppress(ValueError):
            self.again.remove(place)
        self._thin_out()
        return done

    def _thin_out(self) -> None:
        """Let go of those that there is no more work for."""
        while self.idle and len(self.idle) + len(self.busy) > self.most:
            connection, process = self.idle.popitem()
            connection.close()  # ends it
            process.join(_PATIENCE_S)

    def dismiss(self) -> None:
        """Stop all, whatever they do."""
        busy = [process for process, _ in self.busy.values()]
        crew = [*zip(self.busy, busy, strict=True), *self.idle.items()]
        self.idle, self.busy = {}, {}
        for connection, process in crew:
            connection.close()  # who has nothing to do ends
            if process in busy:
                process.terminate()
        until = time.monotonic() + _PATIENCE_S
        for connection, process in crew:
            _end(connection, process, until - time.monotonic())


def _end(connection: Connection, process: BaseProcess, patience_s: float = _PATIENCE_S) -> None:
    connection.close()
    process.join(max(0, patience_s))
    if process.is_alive():
        process.kill()
        process.join()


def _killed_error(path: Path, process: BaseProcess) -> NsysPPError:
    code = process.exitcode or 0
    how = f"killed by signal {-code}" if code < 0 else f"gone with status {code}"
    why = ", as the system does when there is no memory left" if code == -9 else ""
    return NsysPPError(
        f"the process that worked on `{path}` was {how}{why}; so was one that had the machine to itself",
        "the report may need more memory than there is: give the job more, take fewer with `--processes 1` or a smaller"
        " `--memory`, or show less with `--detail`",
    )


def _serve(connection: Connection, task: bytes) -> None:
    """Work on what comes until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    work = pickle.loads(task)
    with suppress(EOFError, OSError):  # whoever gave work is gone
        while True:
            place, item = pickle.loads(connection.recv_bytes())
            done = batch(work, item, place)
            try:
                data = pickle.dumps(done)
            except Exception as error:
                data = pickle.dumps(Outcome(place=place, error=TypeError(f"cannot be sent: {error}")))
            connection.send_bytes(data)


def _leave(*_: object) -> None:
    """Close what is open and take it away, without a word: nobody listens any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(143)


@contextmanager
def _share_cores(jobs: int) -> Iterator[None]:
    """Let the processes that are started here share the cores; polars reads this when it is imported."""
    before = os.environ.get(_THREADS_VARIABLE)
    os.environ[_THREADS_VARIABLE] = str(max(1, count_cores() // jobs))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS_VARIABLE]
        else:
            os.environ[_THREADS_VARIABLE] = before


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: who gave them work ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker  # not on Windows

    resource_tracker.ensure_running()  # starting it, which a first process does, would let signals in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
