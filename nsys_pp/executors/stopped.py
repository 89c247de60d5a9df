"""Stopped processes (SIGSTOP, a debugger of the system, a frozen job step): they neither go on nor end.

State of a process: proc_pid_stat(5), Linux; elsewhere no process is known to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

LOOK_S = 2.0
"""Time between two looks at the processes."""

STOPPED_S = 60.0
"""Time after which a stopped process is given up; Ctrl-Z and `fg` stop and continue all processes at once."""

_PROC = Path("/proc")


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
