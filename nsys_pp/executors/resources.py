"""Cores and memory available to this process, within the limits of a container or a batch job."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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
