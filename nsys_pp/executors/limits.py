"""Limits of the processes of a pool: measured memory of the whole tree, and time of one item."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from msgspec import Struct

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.memory_guard import run_memory_error
from nsys_pp.executors.process_memory import measure_process, measure_tree

_INTERVAL_S = 0.2  # between two measurements


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
