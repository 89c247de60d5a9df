"""Executor in spawned processes, one item at a time in each.

`concurrent.futures` and loky stop all processes when the system kills one of them (out of memory), and do not
report its item; `multiprocessing.Pool` waits for ever. Here each process has its own pipe: the end of the
pipe names the item, and the other processes go on.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.executor import (
    Outcome,
    count_cores,
    list_tree,
    measure_process,
    measure_tree,
    run_item,
)
from nsys_pp.leftovers import remove_own

_SPAWN = get_context("spawn")  # a fork of a process with threads, as polars has, may wait for ever
_LOOK_S = 0.2  # between two looks at the limits
_PATIENCE_S = 3.0
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

    is_local = False

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item; after a killed process, its item is retried once, alone.

        After a killed process, half as many processes run, so that the memory of all of them shrinks. Beyond
        the memory limit the process with the most memory is killed, likewise; beyond the time limit, its item
        is an error.
        """
        if not items:
            return
        count = min(self.processes, len(items))
        pool = _Pool(pickle.dumps((work, own)), items, deque(range(len(items))), count, self)
        with _share_cores(count):
            try:
                yield from pool.run()
            finally:
                pool.stop()


class _Pool(Struct):
    work: bytes  # the function and the second arguments, which each process receives when it starts
    items: Sequence[Path]
    waiting: deque[int]
    most: int  # processes
    limits: ProcessExecutor
    retries: deque[int] = field(default_factory=deque)  # items whose process was killed
    busy: dict[Connection, tuple[BaseProcess, int, float]] = field(
        default_factory=dict
    )  # item, and its start
    idle: dict[Connection, BaseProcess] = field(default_factory=dict)

    def run(self) -> Iterator[Outcome]:
        has_limits = self.limits.memory_bytes is not None or self.limits.timeout_s is not None
        while self.waiting or self.busy or self.retries:
            while self.waiting and len(self.busy) < self.most:
                self._assign(self.waiting.popleft())
            if not self.busy:
                self.most = 1
                self.waiting.append(self.retries[0])
                continue
            for ready in wait(list(self.busy), _LOOK_S if has_limits else None):
                yield from self._receive(ready)  # type: ignore[arg-type]
            yield from self._end_late()
            yield from self._end_largest()

    def _end_late(self) -> Iterator[Outcome]:
        limit_s = self.limits.timeout_s
        if limit_s is None:
            return
        late = time.monotonic() - limit_s
        for connection in [one for one, (_, _, begun) in self.busy.items() if begun < late]:
            index = self._kill(connection)
            yield self._finish(
                index,
                NsysPPError(
                    f"`{self.items[index]}` took longer than {limit_s:g} s, and was stopped",
                    "raise `--timeout-per-report`; a trace needs less with `nsys-pp merge --detail jobs`",
                ),
            )

    def _end_largest(self) -> Iterator[Outcome]:
        """End the process with the most memory beyond the limit.

        Its item is retried, or an error if it was alone.

        Raises:
            NsysPPError: The memory of this process alone exceeds the limit.
        """
        limit, own = self.limits.memory_bytes, os.getpid()
        if limit is None or not self.busy or measure_tree(own) <= limit:
            return
        if (used := measure_process(own)) > limit:
            raise NsysPPError(
                f"the run needs more memory than `--memory` allows: it was stopped at {used / 1e9:.2f} GB, "
                "and"
                f" {limit / 1e9:.2f} GB are allowed",
                "raise `--memory`, or name fewer reports; `nsys-pp merge` needs less with `--detail jobs`",
            )
        while self.idle:  # they may hold memory of earlier items
            _end(*self.idle.popitem(), 0)
        if measure_tree(own) <= limit:
            return
        sizes = {one: measure_tree(process.pid or 0) for one, (process, _, _) in self.busy.items()}
        largest, is_alone = max(sizes, key=lambda one: sizes[one]), len(self.busy) == 1
        index = self._kill(largest)
        self.most = max(1, self.most // 2)
        if is_alone:
            yield self._finish(
                index,
                NsysPPError(
                    f"`{self.items[index]}` needs more memory than `--memory` allows: it was stopped at"
                    f" {sizes[largest] / 1e9:.2f} GB, and all processes may use {limit / 1e9:.2f} GB",
                    "raise `--memory`; a trace needs less with `nsys-pp merge --detail jobs`",
                ),
            )
        elif index not in self.retries:
            self.retries.append(index)

    def _kill(self, connection: Connection) -> int:
        process, index, _ = self.busy.pop(connection)
        below = _terminate(process)
        _end(connection, process, _LOOK_S)  # not longer: beyond a limit, memory may grow meanwhile
        _kill_all(below)
        return index

    def _finish(self, index: int, error: NsysPPError | None = None) -> Outcome:
        with suppress(ValueError):
            self.retries.remove(index)
        return Outcome(index=index, error=error)

    def _assign(self, index: int) -> None:
        while True:
            connection, process = self.idle.popitem() if self.idle else self._start()
            with suppress(OSError):  # it was killed while it was idle
                connection.send_bytes(pickle.dumps((index, self.items[index])))
                self.busy[connection] = process, index, time.monotonic()
                return
            _end(connection, process)

    def _start(self) -> tuple[Connection, BaseProcess]:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(theirs, self.work), daemon=True)
        # an interrupt of this thread would leave half a process, with a traceback
        with ThreadPoolExecutor(1) as starter:
            starter.submit(_start_without_interrupts, process, ours, self.idle).result()
        theirs.close()
        return self.idle.popitem()

    def _receive(self, connection: Connection) -> Iterator[Outcome]:
        """Receive an outcome; none where the process was killed and its item is retried."""
        process, index, _ = self.busy.pop(connection)
        try:
            outcome: Outcome = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            _end(connection, process)
            if index not in self.retries:
                self.retries.append(index)
                self.most = max(1, self.most // 2)
                return
            yield self._finish(index, _killed_error(self.items[index], process.exitcode or 0))
        else:
            self.idle[connection] = process
            self._finish(index)
            yield outcome
        while self.idle and len(self.idle) + len(self.busy) > self.most:
            _end(*self.idle.popitem())

    def stop(self) -> None:
        """End all processes, busy ones too."""
        running = [*self.idle.items(), *((one, process) for one, (process, _, _) in self.busy.items())]
        below: list[int] = []
        for connection, process in running:
            connection.close()  # ends an idle one
            if connection in self.busy:
                below += _terminate(process)
        until = time.monotonic() + _PATIENCE_S
        for connection, process in running:
            _end(connection, process, until - time.monotonic())
        _kill_all(below)


def _terminate(process: BaseProcess) -> list[int]:
    """Let a process remove its temporary files, and end; returns those below it: an export by nsys."""
    below = list_tree(process.pid)[1:] if process.pid else []
    process.terminate()
    return below


def _kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _end(connection: Connection, process: BaseProcess, patience_s: float = _PATIENCE_S) -> None:
    connection.close()
    process.join(max(0, patience_s))
    if process.is_alive():
        process.kill()
        process.join()


def _killed_error(path: Path, code: int) -> NsysPPError:
    how = f"killed by signal {-code}" if code < 0 else f"gone with status {code}"
    why = ", usually by the system for lack of memory" if code == -9 else ""
    if code > 0:  # most often a script that each of its processes runs again
        return NsysPPError(
            f"the process that worked on `{path}` was {how}, and so was a second one that ran alone: see its"
            " error on stderr",
            'a script that uses `processes` needs its calls below `if __name__ == "__main__":`',
        )
    return NsysPPError(
        f"the process that worked on `{path}` was {how}{why}, and so was a second one that ran alone",
        "it may need more memory than there is: raise the memory limit of the job, use `--processes 1` or a"
        " smaller `--memory`, or draw less with `nsys-pp merge --detail jobs`",
    )


def _serve(connection: Connection, pickled_work: bytes) -> None:
    """Run items until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_quietly)
    try:
        work, own = pickle.loads(pickled_work)
        with suppress(EOFError, OSError):  # the parent process is gone
            while True:
                index, item = pickle.loads(connection.recv_bytes())
                outcome = run_item(work, item, index, own)
                try:
                    data = pickle.dumps(outcome)
                except Exception as error:
                    data = pickle.dumps(Outcome(index=index, error=TypeError(f"cannot be sent: {error}")))
                connection.send_bytes(data)
    except SystemExit:
        remove_own()  # `atexit` does nothing in processes of `multiprocessing`
        raise


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
        del os.environ[_THREADS_VARIABLE]
        if before is not None:
            os.environ[_THREADS_VARIABLE] = before


def _start_without_interrupts(
    process: BaseProcess, connection: Connection, idle: dict[Connection, BaseProcess]
) -> None:
    """Start a process that ignores Ctrl-C, and list it: the parent process ends it."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # a first process would start it, and that would unblock the signal
        # of this thread only, whose mask the process inherits
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process.start()
    idle[connection] = process  # here, as the other thread may be interrupted before it knows
