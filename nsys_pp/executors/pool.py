"""Executor in spawned processes, one item at a time in each.

`concurrent.futures` and loky stop all processes when the system kills one of them (out of memory), and do not
report its item; `multiprocessing.Pool` waits for ever. Here each process has its own pipe: the end of the pipe
names the item, and the other processes go on.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.executor import Outcome, run_item
from nsys_pp.executors.limits import (
    LOOK_S,
    STOPPED_S,
    Limits,
    StopWatch,
    count_cores,
    enforced_by_pool,
    list_tree,
)
from nsys_pp.leftovers import remove_own

_SPAWN = get_context("spawn")  # a fork of a process with threads, as polars has, may wait for ever
_PATIENCE_S = 3.0
_KILL_PATIENCE_S = 0.5  # beyond a limit, memory may grow meanwhile
_THREADS_VARIABLE = "POLARS_MAX_THREADS"


class ProcessExecutor(Struct, frozen=True, kw_only=True):
    """Executor in up to `processes` spawned processes.

    Attributes:
        processes: Largest number of processes.
        memory_bytes: Limit of the measured memory of this process and all processes below it; None: no limit.
        timeout_s: Time limit of one item; None: no limit.
    """

    processes: int
    memory_bytes: int | None = None
    timeout_s: float | None = None

    @property
    def is_local(self) -> bool:
        """False."""
        return False

    @property
    def is_remote(self) -> bool:
        """False."""
        return False

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item; after a killed process, its item is retried once, alone.

        After a killed process, half as many processes run, so that the memory of all of them shrinks. Beyond the
        memory limit the process with the most memory is killed, likewise; beyond the time limit, its item is an error.
        """
        if not items:
            return
        limits = Limits(memory_bytes=self.memory_bytes, timeout_s=self.timeout_s)
        pool = _Pool(work, items, own, limit=min(self.processes, len(items)), limits=limits)
        with _share_cores(pool.limit), enforced_by_pool():
            try:
                yield from pool.run()
            finally:
                pool.stop()


class _Pool(Struct):
    """Running processes and the items that are left."""

    work: Callable[..., Any]
    items: Sequence[Path]
    own: Mapping[Path, Any] | None  # second arguments, which each process receives when it starts
    limit: int  # of processes
    limits: Limits
    begun: dict[Connection, float] = field(default_factory=dict)  # of each busy process
    waiting: deque[int] = field(default_factory=deque)
    retries: deque[int] = field(default_factory=deque)  # items whose process was killed
    busy: dict[Connection, tuple[BaseProcess, int]] = field(default_factory=dict)
    idle: dict[Connection, BaseProcess] = field(default_factory=dict)
    stop_watch: StopWatch = field(default_factory=StopWatch)
    given_up: set[int] = field(default_factory=set)  # processes that were stopped for long

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.items)))

    def run(self) -> Iterator[Outcome]:
        while self.waiting or self.busy or self.retries:
            while self.waiting and len(self.busy) < self.limit:
                self._assign(self.waiting.popleft())
            if not self.busy:
                self.limit = 1
                self.waiting.append(self.retries[0])
                continue
            for ready in wait(list(self.busy), min(LOOK_S, self.limits.interval_s or LOOK_S)):
                outcome = self._receive(ready)  # type: ignore[arg-type]
                if outcome is not None:
                    yield outcome
            self._kill_stopped()
            yield from self._enforce_limits()

    def _enforce_limits(self) -> Iterator[Outcome]:
        """End processes beyond a limit; yields the errors of items that are not retried."""
        for connection in [one for one in self.busy if self.limits.is_late(self.begun[one])]:
            index = self._kill(connection)
            yield self._fail(index, self.limits.late_error(self.items[index]))
        if not self.busy or not self.limits.is_exceeded():
            return
        self.limits.check_own_memory()
        while self.idle:  # they may hold memory of earlier items
            connection, process = self.idle.popitem()
            _end(connection, process, 0)
        largest, peak = self.limits.find_largest({one: process for one, (process, _) in self.busy.items()})
        if largest is None:
            return
        is_alone = len(self.busy) == 1
        index = self._kill(largest)
        self.limit = max(1, self.limit // 2)
        if is_alone:
            yield self._fail(index, self.limits.memory_error(self.items[index], peak))
        elif index not in self.retries:
            self.retries.append(index)

    def _kill(self, connection: Connection) -> int:
        """Kill a busy process and all below it; returns its item."""
        process, index = self.busy.pop(connection)
        below = list_tree(process.pid)[1:] if process.pid else []
        process.terminate()  # it removes its temporary files, if it gets to it
        _end(connection, process, _KILL_PATIENCE_S)
        for pid in below:  # an export by nsys
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return index

    def _fail(self, index: int, error: NsysPPError) -> Outcome:
        with suppress(ValueError):
            self.retries.remove(index)
        return Outcome(index=index, error=error)

    def _kill_stopped(self) -> None:
        """Kill processes that are stopped for long, as the system kills others: their items are retried once."""
        processes = {process.pid: process for process, _ in self.busy.values() if process.pid is not None}
        for pid in self.stop_watch.find_given_up(processes):
            self.given_up.add(pid)
            processes[pid].kill()

    def _assign(self, index: int) -> None:
        while True:
            connection, process = self.idle.popitem() if self.idle else self._start()
            with suppress(OSError):  # it was killed while it was idle
                connection.send_bytes(pickle.dumps((index, self.items[index])))
                self.busy[connection] = process, index
                self.begun[connection] = time.monotonic()
                return
            _end(connection, process)

    def _start(self) -> tuple[Connection, BaseProcess]:
        ours, theirs = _SPAWN.Pipe()
        work = pickle.dumps((self.work, self.own))
        process = _SPAWN.Process(target=_serve, args=(theirs, work), daemon=True)
        with ThreadPoolExecutor(
            1
        ) as starter:  # an interrupt of this thread would leave half a process, with a traceback
            starter.submit(_start_without_interrupts, process).result()
        theirs.close()
        return ours, process

    def _receive(self, connection: Connection) -> Outcome | None:
        """Receive an outcome; None where the process was killed and its item is retried."""
        process, index = self.busy.pop(connection)
        try:
            outcome: Outcome = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            _end(connection, process)
            if index not in self.retries:
                self.retries.append(index)
                self.limit = max(1, self.limit // 2)
                return None
            was_stopped = process.pid in self.given_up
            make_error = _stopped_error if was_stopped else _killed_error
            outcome = Outcome(index=index, error=make_error(self.items[index], process))
        else:
            self.idle[connection] = process
        with suppress(ValueError):
            self.retries.remove(index)
        self._end_surplus()
        return outcome

    def _end_surplus(self) -> None:
        """End idle processes beyond the limit."""
        while self.idle and len(self.idle) + len(self.busy) > self.limit:
            connection, process = self.idle.popitem()
            connection.close()  # ends it
            process.join(_PATIENCE_S)

    def stop(self) -> None:
        """End all processes, busy ones too."""
        busy = [process for process, _ in self.busy.values()]
        running = [*zip(self.busy, busy, strict=True), *self.idle.items()]
        self.idle, self.busy = {}, {}
        for connection, process in running:
            connection.close()  # ends an idle one
            if process in busy:
                process.terminate()
        until = time.monotonic() + _PATIENCE_S
        for connection, process in running:
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
    why = ", usually by the system for lack of memory" if code == -9 else ""
    if code > 0:  # most often a script that each of its processes runs again
        return NsysPPError(
            f"the process that worked on `{path}` was {how}, and so was a second one that ran alone: see its error on stderr",
            'a script that uses `processes` needs its calls below `if __name__ == "__main__":`',
        )
    return NsysPPError(
        f"the process that worked on `{path}` was {how}{why}, and so was a second one that ran alone",
        "it may need more memory than there is: raise the memory limit of the job, use `--processes 1` or a"
        " smaller `--memory`, or draw less with `--detail`",
    )


def _stopped_error(path: Path, _: BaseProcess) -> NsysPPError:
    return NsysPPError(
        f"the process that worked on `{path}` was stopped for {STOPPED_S:g} s and given up, and so was a second one",
        "see who stops processes of this job (SIGSTOP), or process it here: `--processes 1`",
    )


def _serve(connection: Connection, pickled_work: bytes) -> None:
    """Run items until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_quietly)
    try:
        _run_items(connection, *pickle.loads(pickled_work))
    except SystemExit:
        remove_own()  # `atexit` does nothing in processes of `multiprocessing`
        raise


def _run_items(connection: Connection, work: Callable[..., Any], own: Mapping[Path, Any] | None) -> None:
    with suppress(EOFError, OSError):  # the parent process is gone
        while True:
            index, item = pickle.loads(connection.recv_bytes())
            outcome = run_item(work, item, index, own)
            try:
                data = pickle.dumps(outcome)
            except Exception as error:
                data = pickle.dumps(Outcome(index=index, error=TypeError(f"cannot be sent: {error}")))
            connection.send_bytes(data)


def _exit_quietly(*_: object) -> None:
    """Exit with cleanup, but without output: it has no reader any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(143)


@contextmanager
def _share_cores(processes: int) -> Iterator[None]:
    """Split the cores among the processes started here; polars reads the variable when it is imported."""
    before = os.environ.get(_THREADS_VARIABLE)
    os.environ[_THREADS_VARIABLE] = str(max(1, count_cores() // processes))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS_VARIABLE]
        else:
            os.environ[_THREADS_VARIABLE] = before


def _start_without_interrupts(process: BaseProcess) -> None:
    """Start a process that ignores Ctrl-C; the parent process ends it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        process.start()
        return
    from multiprocessing import resource_tracker  # not on Windows

    resource_tracker.ensure_running()  # a first process would start it, and that would unblock the signal
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # of this thread only, whose mask the process inherits
    process.start()
