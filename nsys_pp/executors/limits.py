"""Cores and memory that are available, what a report may need of them, and what processes use (Linux)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

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
        paths: The reports.
        processes: Upper limit; None: as many as cores and free memory allow.
        memory_bytes: Memory limit of all processes together.
    """
    most = max(1, min(len(paths), processes or count_cores()))
    memory = memory_bytes if memory_bytes is not None else find_memory() if processes is None else None
    if memory is None or not paths:
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
