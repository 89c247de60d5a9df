"""Measured memory of a process and of all processes below it (Linux; elsewhere it is unknown).

Anonymous and shared memory count; pages of files do not, as the system can drop them: proc_pid_status(5).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

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
