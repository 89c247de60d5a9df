"""Executors: their interface, the outcome of an item, and which one fits the inputs.

It counts the cores and the memory that are available, and estimates what a report needs of them (Linux).
"""

from __future__ import annotations

import os
import pickle
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from nsys_pp.frames.part import SUFFIX

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")  # of version 2; see cgroups(7) and the kernel's cgroup-v2.rst
_OWN_GROUP = _PROC / "self/cgroup"
_MEMORY = _PROC / "meminfo"

# Peaks of `extract`, all details, on reports with as many NVTX ranges as kernels: 15 MB of SQLite 0.22 GB,
# 47 MB 0.37 GB, 162 MB 0.89 GB, 329 MB 1.57 GB. That is 0.15 GB and 4.3 bytes for each byte; the rest is a
# margin for reports of other shapes and for memory that allocators keep.
BASE_BYTES = 250_000_000
BYTES_PER_BYTE = 6
_LARGE_BYTES = 1_000_000_000  # of an estimate; with less, free memory is not looked at
_GROWTH = {".sqlite": 1, ".nsys-rep": 10, ".qdrep": 10, "": 6}  # size as SQLite; "": a folder


def count_cores() -> int:
    """Count the available cores; a container's CPU quota counts in whole cores, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _list_groups():
        with suppress(OSError, ValueError):  # `max` instead of a number: no limit
            quota, period = (group / "cpu.max").read_text().split()
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def find_memory() -> int | None:
    """Return the free memory in bytes; None where it is unknown."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        limits.append(_find_number(_MEMORY, "MemAvailable:") * 1024)
    for group in _list_groups():
        with suppress(OSError, ValueError, StopIteration):
            used = int((group / "memory.current").read_text())
            cached = _find_number(group / "memory.stat", "inactive_file")
            limits.append(int((group / "memory.max").read_text()) - used + cached)
    return max(0, min(limits)) if limits else None


def _list_groups() -> list[Path]:
    """List the control groups of this process, innermost first."""
    own = "/"
    with suppress(OSError, StopIteration):
        own = next(line for line in _OWN_GROUP.read_text().splitlines() if line.startswith("0::"))[3:]
    inner = _GROUPS / own.lstrip("/")
    return [group for group in (inner, *inner.parents) if group.is_relative_to(_GROUPS)]


def _find_number(file: Path, name: str) -> int:
    return int(next(line for line in file.read_text().splitlines() if line.startswith(name)).split()[1])


def estimate_peak(path: Path) -> int:
    """Estimate the peak memory of processing one report, in bytes."""
    kind = path.suffix.lower()
    if kind == SUFFIX:
        return BASE_BYTES
    size = 0
    with suppress(OSError):  # reading it will raise the error
        if path.is_dir():
            size = sum(file.stat().st_size for file in path.iterdir()) * _GROWTH[""]
        else:
            size = path.stat().st_size * _GROWTH.get(kind, 1)
    return BASE_BYTES + BYTES_PER_BYTE * size


def warn_of_large(paths: Sequence[Path]) -> None:
    """Warn where the largest report may need more memory than is free.

    The system ends a process without a word.
    """
    peak, largest = max(((estimate_peak(path), path) for path in paths), default=(0, None))
    free = find_memory() if peak >= _LARGE_BYTES else None
    if free is not None and peak > free:
        warnings.warn(
            f"`{largest}` may need {peak / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free:"
            " `--memory` ends such a report with an error, before the system ends the program",
            stacklevel=5,
        )


def choose_process_count(
    paths: Sequence[Path], *, processes: int | None = None, memory_bytes: int | None = None
) -> int:
    """Choose the number of processes; warns where memory may be too small for the largest report.

    Args:
        paths: The reports; at least one.
        processes: Upper limit; None: as many as cores and free memory allow.
        memory_bytes: Memory limit of all processes together.
    """
    most = min(len(paths), processes or count_cores())
    memory = memory_bytes if memory_bytes is not None else find_memory() if processes is None else None
    if memory is None:
        return most
    peak, largest = max((estimate_peak(path), path) for path in paths)
    if memory_bytes is not None and peak > memory_bytes:
        warnings.warn(
            f"`{largest}` may need {peak / 1e9:.1f} GB of memory, which is more than `--memory`: reports are"
            " processed one by one",
            stacklevel=5,
        )
    return max(1, min(most, memory // peak))


def measure_tree(pid: int) -> int:
    """Measure the memory of a process and of all processes below it, in bytes.

    0 where it is unknown or gone.
    """
    return sum(measure_process(member) for member in list_tree(pid))


def list_tree(pid: int) -> list[int]:
    """List a process and all processes below it, without ended ones."""
    members = [pid]
    for member in members:  # it grows meanwhile
        with suppress(OSError, ValueError):  # the process has ended
            for task in (_PROC / str(member) / "task").iterdir():
                members += map(int, (task / "children").read_text().split())
    return members


def measure_process(pid: int) -> int:
    """Measure the memory of one process without pages of files, in bytes; 0 where it is unknown or gone."""
    with suppress(OSError, ValueError):
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
        return sum(
            int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:"))
        )
    return 0


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of one item: a value, or an error."""

    index: int  # of the item
    value: Any = None
    error: Exception | None = None
    traceback: str = ""  # of an error in another process
    warnings: tuple[Warning, ...] = ()  # of another process, in order; those of this one are emitted already


class Executor(Protocol):
    """Calls a function with each of many items."""

    @property
    def is_local(self) -> bool:
        """Whether calls run in this process, one after the other."""

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item as soon as it is ready, in any order; closing stops all work.

        Unless `is_local`, `work`, its second arguments and its results must be picklable: functions of
        modules, and partials of these.

        Args:
            work: The function.
            items: First arguments: files that are read, or outputs as users know them.
            own: Second argument of each item; None: there is none.

        Raises:
            NsysPPError: The executor cannot run.
        """


class RemoteTraceback(Exception):  # noqa: N818  (shown as the cause of an error)
    """Traceback of an error in another process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def call(work: Callable[..., Any], item: Path, own: Mapping[Path, Any] | None) -> Any:
    """Call a function with an item, and with its second argument if there is one."""
    return work(item) if own is None else work(item, own[item])


def run_item(
    work: Callable[..., Any], item: Path, index: int, own: Mapping[Path, Any] | None = None
) -> Outcome:
    """Call a function with one item in a process other than the caller's; arguments as in `Executor.map`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value, error, text = None, None, ""
        try:
            value = call(work, item, own)
        except BaseException as raised:
            error, text = as_exception(raised), traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # it cannot be sent to another process
                error = RuntimeError(f"{type(error).__name__}: {error}")
    kept = tuple(record.message for record in caught if isinstance(record.message, UserWarning))
    return Outcome(index=index, value=value, error=error, traceback=text, warnings=kept)


def as_exception(error: BaseException) -> Exception:
    """Return an error of an item as an `Exception`.

    Libraries in Rust (polars) raise a `PanicException` where they meet a value they do not expect. It derives
    from `BaseException`, and would end all work instead of one item.

    Raises:
        BaseException: `error`, where it ends the process: Ctrl-C, `sys.exit`, a closed generator.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        raise error
    portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.__cause__ = error
    return portable


class SerialExecutor:
    """Executor in this process: one item after the other, each when its outcome is asked for."""

    is_local = True

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item in order; nothing needs to be picklable."""
        for index, item in enumerate(items):
            try:
                outcome = Outcome(index=index, value=call(work, item, own))
            except BaseException as error:
                outcome = Outcome(index=index, error=as_exception(error))
            yield outcome


def choose_executor(
    paths: Sequence[Path],
    *,
    processes: int | None,
    memory_bytes: int | None,
    timeout_s: float | None,
    scheduler: str | Path | None,
) -> Executor:
    """Choose the executor for inputs; warns where memory may be too small for one of them.

    Args:
        paths: The inputs.
        processes: Number of processes; 0: as many as cores and memory allow; None: this process,
            unless `memory_bytes` or `timeout_s` is set.
        memory_bytes: Memory limit of all processes together; with a scheduler, of each worker.
        timeout_s: Time limit of one item; it needs a process of its own, which can be ended.
        scheduler: Address or scheduler file of a Dask cluster.
    """
    if scheduler is not None:
        from nsys_pp.executors.dask import DaskExecutor

        return DaskExecutor(scheduler=str(scheduler), memory_bytes=memory_bytes, timeout_s=timeout_s)
    is_limited = memory_bytes is not None or timeout_s is not None
    if processes is None and not is_limited:
        warn_of_large(paths)
        return SerialExecutor()
    from nsys_pp.executors.pool import ProcessExecutor

    most = 1 if processes is None and memory_bytes is None else processes or None
    count = choose_process_count(paths, processes=most, memory_bytes=memory_bytes)
    if count == 1 and not is_limited:
        return SerialExecutor()
    return ProcessExecutor(processes=count, memory_bytes=memory_bytes, timeout_s=timeout_s)
