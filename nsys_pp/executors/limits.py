"""Memory limit of a whole command: the work on the output of all reports counts, too.

While a pool runs, it ends the process of the largest report instead (`nsys_pp.executors.limits`).
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from msgspec import Struct, field

from nsys_pp.errors import NsysPPError
from nsys_pp.frames.part import SUFFIX

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


_GROUPS = Path("/sys/fs/cgroup")  # of version 2; see cgroups(7) and the kernel's cgroup-v2.rst
_OWN_GROUP = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")


def count_cores() -> int:
    """Count the available cores; a container's CPU quota counts in whole cores, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _find_groups():
        with suppress(OSError, ValueError):  # `max` instead of a number: no limit
            quota, period = (group / "cpu.max").read_text().split()
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def find_memory() -> int | None:
    """Return the free memory in bytes; None where it is unknown."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        limits.append(_find_number(lines, "MemAvailable:") * 1024)
    for group in _find_groups():
        with suppress(OSError, ValueError, StopIteration):
            used = int((group / "memory.current").read_text())
            cached = _find_number((group / "memory.stat").read_text().splitlines(), "inactive_file")
            limits.append(int((group / "memory.max").read_text()) - used + cached)
    return max(0, min(limits)) if limits else None


def _find_groups() -> list[Path]:
    """List the control groups of this process, innermost first."""
    own = "/"
    with suppress(OSError, StopIteration):
        lines = _OWN_GROUP.read_text().splitlines()
        own = next(line for line in lines if line.startswith("0::"))[3:]
    inner = _GROUPS / own.lstrip("/")
    return [group for group in (inner, *inner.parents) if group.is_relative_to(_GROUPS)]


def _find_number(lines: list[str], name: str) -> int:
    return int(next(line for line in lines if line.startswith(name)).split()[1])


_PROC = Path("/proc")
_OWN = ("RssAnon:", "RssShmem:")


def measure_tree(pid: int) -> int:
    """Measure the memory of a process and of all processes below it, in bytes; 0 where it is unknown or gone."""
    return sum(measure_process(member) for member in list_tree(pid))


def list_tree(pid: int) -> list[int]:
    """List a process and all processes below it, without ended ones."""
    members, at = [pid], 0
    while at < len(members):
        tasks = _PROC / str(members[at]) / "task"
        at += 1
        with suppress(OSError, ValueError):  # it has ended meanwhile
            for task in tasks.iterdir():
                members += [int(child) for child in (task / "children").read_text().split()]
    return members


def measure_process(pid: int) -> int:
    """Measure the memory of one process, in bytes; 0 where it is unknown or gone."""
    with suppress(OSError, ValueError):
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))
    return 0


LOOK_S = 2.0
"""Time between two looks at the processes."""

STOPPED_S = 60.0
"""Time after which a stopped process is given up; Ctrl-Z and `fg` stop and continue all processes at once."""


class StopWatch(Struct):
    """Times since when processes are stopped."""

    since: dict[int, float] = field(default_factory=dict)  # by process id
    looked: float = 0.0

    def find_given_up(self, pids: Iterable[int]) -> list[int]:
        """Find the processes that are stopped for `STOPPED_S`, at most every `LOOK_S`."""
        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return []
        # this process may have been stopped, too
        is_first = now - self.looked > 2 * LOOK_S + 1
        self.looked = now
        stopped = [pid for pid in pids if is_stopped(pid)]
        self.since = {pid: now if is_first else self.since.get(pid, now) for pid in stopped}
        return [pid for pid, since in self.since.items() if now - since >= STOPPED_S]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    with suppress(OSError, IndexError):
        # the name of the program, in parentheses, may contain anything
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    return False


class Limits(Struct, frozen=True, kw_only=True):
    """Limits; None: no limit.

    Attributes:
        memory_bytes: Of this process and all processes below it.
        timeout_s: Of one item.
    """

    memory_bytes: int | None = None
    timeout_s: float | None = None

    @property
    def interval_s(self) -> float | None:
        """Time to wait between two looks at the limits; None without limits."""
        return None if self.memory_bytes is None and self.timeout_s is None else _INTERVAL_S

    def is_late(self, begun_s: float) -> bool:
        """Return whether an item exceeds the time limit."""
        return self.timeout_s is not None and time.monotonic() - begun_s > self.timeout_s

    def is_exceeded(self) -> bool:
        """Return whether the measured memory exceeds the limit."""
        return self.memory_bytes is not None and measure_tree(os.getpid()) > self.memory_bytes

    def check_own_memory(self) -> None:
        """Check the memory of this process alone, which no end of another one lowers.

        Raises:
            NsysPPError: It exceeds the limit.
        """
        used = measure_process(os.getpid())
        if self.memory_bytes is not None and used > self.memory_bytes:
            raise run_memory_error(used, self.memory_bytes)

    def find_largest(self, processes: Mapping[Connection, BaseProcess]) -> tuple[Connection | None, int]:
        """Find the process with the most memory below it, if the limit is still exceeded; None: it is not."""
        if not self.is_exceeded():
            return None, 0
        sizes = {key: measure_tree(process.pid or 0) for key, process in processes.items()}
        largest = max(sizes, key=lambda key: sizes[key])
        return largest, sizes[largest]

    def late_error(self, path: Path) -> NsysPPError:
        """Return the error of an item beyond the time limit."""
        return NsysPPError(
            f"`{path}` took longer than {self.timeout_s:g} s, and was stopped",
            "raise `--timeout-per-report`, or draw less with `--detail`",
        )

    def memory_error(self, path: Path, used_bytes: int) -> NsysPPError:
        """Return the error of an item that exceeds the memory limit although no other is processed."""
        limit = self.memory_bytes or 0
        return NsysPPError(
            f"`{path}` needs more memory than `--memory` allows: it was stopped at {used_bytes / 1e9:.2f} GB, and all"
            f" processes may use {limit / 1e9:.2f} GB",
            "raise `--memory`, or draw less with `--detail`",
        )


# Peaks of `extract`, all details, measured from outside on reports with as many NVTX ranges as kernels:
# 1.6 MB of SQLite 0.14 GB, 15 MB 0.22 GB, 47 MB 0.37 GB, 162 MB 0.89 GB, 329 MB 1.57 GB. That is 0.15 GB and
# 4.3 bytes for each byte; the rest is a margin for reports of other shapes and for memory that allocators keep.
BASE_BYTES = 250_000_000
BYTES_PER_BYTE = 6
_LARGE_BYTES = 1_000_000_000  # of an estimate; with less, free memory is not looked at
# Assumed size as SQLite, relative to the compressed form.
_GROWTH = {".sqlite": 1, ".nsys-rep": 10, ".qdrep": 10}
_FOLDER_GROWTH = 6


def estimate_peak(path: Path) -> int:
    """Estimate the peak memory of processing one report, in bytes."""
    if path.suffix.lower() == SUFFIX:
        return BASE_BYTES
    try:
        if path.is_dir():
            size = sum(file.stat().st_size for file in path.iterdir()) * _FOLDER_GROWTH
        else:
            size = path.stat().st_size * _GROWTH.get(path.suffix.lower(), 1)
    except OSError:  # reading it will raise the error
        size = 0
    return BASE_BYTES + BYTES_PER_BYTE * size


def warn_of_large(paths: Sequence[Path]) -> None:
    """Warn where the largest report may need more memory than is free: the system ends a process without a word."""
    sizes = {path: estimate_peak(path) for path in paths}
    largest = max(sizes, key=lambda path: sizes[path], default=None)
    if largest is None or sizes[largest] < _LARGE_BYTES:
        return
    free = find_memory()
    if free is not None and sizes[largest] > free:
        warnings.warn(
            f"`{largest}` may need {sizes[largest] / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free:"
            " `--memory` ends such a report with an error, before the system ends the program",
            stacklevel=5,
        )


def choose_process_count(
    paths: Sequence[Path], *, processes: int | None = None, memory_bytes: int | None = None
) -> int:
    """Choose the number of processes; warns where memory may be too small for the largest report.

    Args:
        paths: The reports.
        processes: Upper limit; None: as many as cores and free memory allow.
        memory_bytes: Memory limit of all processes together.
    """
    if not paths:
        return 1
    most = min(len(paths), processes or count_cores())
    memory = memory_bytes if memory_bytes is not None else find_memory() if processes is None else None
    if memory is None:
        return most
    largest = max(paths, key=estimate_peak)
    peak = estimate_peak(largest)
    if memory_bytes is not None and peak > memory_bytes:
        warnings.warn(
            f"`{largest}` may need {peak / 1e9:.1f} GB of memory, which is more than `--memory`: reports are"
            " processed one by one",
            stacklevel=5,
        )
    return max(1, min(most, memory // peak))
