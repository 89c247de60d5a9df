"""Where the reports of a command are worked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nsys_pp.executors.dask import DaskExecutor
from nsys_pp.executors.executor import Executor
from nsys_pp.executors.memory import BASE_BYTES, BYTES_PER_BYTE, choose_jobs
from nsys_pp.executors.pool import ProcessExecutor
from nsys_pp.executors.serial import SerialExecutor

__all__ = ["BASE_BYTES", "BYTES_PER_BYTE", "WorkOptions", "choose_executor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What the user wants; by default reports are worked on one by one in this process.

    Processes are new ones (`spawn`): a script that asks for them begins with `if __name__ == "__main__"`.
    """

    jobs: int | None = None  # processes; 0: as many as cores and memory allow
    memory_bytes: int | None = None  # for all of them together; takes as many as it is enough for
    scheduler: str | None = None  # of a Dask cluster: its address, or its file


def choose_executor(options: WorkOptions | None, paths: Sequence[Path]) -> Executor:
    """Choose who works on these reports; warns where memory may not be enough for one of them."""
    options = options or WorkOptions()
    if options.scheduler is not None:
        return DaskExecutor(scheduler=options.scheduler)
    if options.jobs is None and options.memory_bytes is None:
        return SerialExecutor()
    jobs = choose_jobs(paths, jobs=options.jobs or None, memory_bytes=options.memory_bytes)
    return ProcessExecutor(jobs=jobs) if jobs > 1 else SerialExecutor()
