"""Choice of the executor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nsys_pp.executors.executor import Executor, SerialExecutor


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
    from nsys_pp.executors.limits import choose_process_count, warn_of_large

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
