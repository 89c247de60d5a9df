"""Choice of the executor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.executors.executor import Executor
from nsys_pp.executors.serial import SerialExecutor


def choose_executor(
    paths: Sequence[Path],
    *,
    processes: int | None,
    memory_bytes: int | None,
    scheduler: str | Path | None,
) -> Executor:
    """Choose the executor for inputs; warns where memory may be too small for one of them.

    Args:
        paths: The inputs.
        processes: Number of processes; 0: as many as cores and memory allow; None: this process,
            unless `memory_bytes` is set.
        memory_bytes: Memory limit of all processes together.
        scheduler: Address or scheduler file of a Dask cluster.
    """
    if scheduler is not None:
        from nsys_pp.executors.dask import DaskExecutor

        return DaskExecutor(scheduler=str(scheduler))
    if processes is None and memory_bytes is None:
        return SerialExecutor()
    from nsys_pp.executors.memory import choose_process_count
    from nsys_pp.executors.pool import ProcessExecutor

    count = choose_process_count(paths, processes=processes or None, memory_bytes=memory_bytes)
    return ProcessExecutor(processes=count) if count > 1 else SerialExecutor()
