"""Executor on a Dask cluster; its workers have nsys-pp and see the same files.

API: https://distributed.dask.org/en/stable/client.html.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from multiprocessing import current_process
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.errors import NsysPPError
from nsys_pp.executors.executor import Outcome, run_item
from nsys_pp.frames.part import FORMAT

_CONNECT_S = 30
_POLL_S = 2.0
_ABANDONED_S = 60  # without any worker for so long is an error
_ONE_AT_A_TIME = threading.Lock()
_OURS = (version("nsys-pp"), FORMAT)


class DaskExecutor(Struct, frozen=True, kw_only=True):
    """Executor on the cluster of a scheduler.

    With a limit, a worker starts a process for each item, which can be ended: Dask cannot stop a task that
    runs.

    Attributes:
        scheduler: Its address, or its scheduler file.
        memory_bytes: Limit of the measured memory of a worker and all processes below it; None: no limit.
        timeout_s: Time limit of one item; None: no limit.
    """

    scheduler: str
    memory_bytes: int | None = None
    timeout_s: float | None = None

    is_local = False

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item; Dask moves the items of a lost worker to others.

        Raises:
            NsysPPError: There is no such cluster, its version differs, or its workers do not see the items.
        """
        with _connect(self.scheduler) as client:
            if items:
                _check_workers(client, items[0], self.scheduler)
            remote = partial(
                _run_remotely, folder=os.getcwd(), memory_bytes=self.memory_bytes, timeout_s=self.timeout_s
            )
            waiting = {
                client.submit(
                    remote, work, item, index, None if own is None else {item: own[item]}, pure=False
                ): index
                for index, item in enumerate(items)
            }
            for future in _as_finished(client, waiting, self.scheduler):
                index = waiting[future]
                if future.status == "finished":
                    yield future.result()
                else:
                    is_cancelled = future.status == "cancelled"
                    why = "it was cancelled" if is_cancelled else _first_line(future.exception(timeout=5))
                    error = NsysPPError(  # errors of the work itself come back as values
                        f"`{items[index]}` could not be processed with Dask: {why}",
                        "see the workers' logs: it may need more memory than a worker has",
                    )
                    yield Outcome(index=index, error=error)
                future.release()


def _run_remotely(
    work: Callable[..., Any],
    item: Path,
    index: int,
    own: Mapping[Path, Any] | None,
    *,
    folder: str,
    memory_bytes: int | None,
    timeout_s: float | None,
) -> Outcome:
    """Run one item at a time, in the client's working directory: memory is planned for the largest report.

    With a limit, in a process below the worker, which ends beyond it.
    """
    from nsys_pp.executors.pool import ProcessExecutor

    with _ONE_AT_A_TIME:
        before = os.getcwd()
        os.chdir(folder)
        try:
            if memory_bytes is None and timeout_s is None:
                return run_item(work, item, index, own)
            executor = ProcessExecutor(processes=1, memory_bytes=memory_bytes, timeout_s=timeout_s)
            with _with_children():
                (outcome,) = executor.map(work, [item], own)
            return replace(outcome, index=index)
        except NsysPPError as error:  # the worker itself has more memory
            return Outcome(index=index, error=error)
        finally:
            os.chdir(before)


@contextmanager
def _with_children() -> Iterator[None]:
    """Allow processes below this one.

    Dask's nannies start workers as daemons, and Python denies them child processes.
    """
    config: Any = getattr(current_process(), "_config")  # noqa: B009  # it has no public name
    is_daemon = config.get("daemon", False)
    config["daemon"] = False
    try:
        yield
    finally:
        config["daemon"] = is_daemon


@contextmanager
def _connect(scheduler: str) -> Iterator[Any]:
    try:
        import distributed
    except ImportError:
        raise NsysPPError(
            "Dask is not installed, and a scheduler was given", "install it: `pip install 'nsys-pp[dask]'`"
        ) from None
    # a worker that went away shows in the outcomes of its items, not in a log
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    client: Any = None
    open_client: Any = distributed.Client  # it has no types
    try:
        where = {"scheduler_file": scheduler} if Path(scheduler).is_file() else {"address": scheduler}
        try:
            client = open_client(**where, timeout=_CONNECT_S, set_as_default=False)
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except (OSError, ValueError, ImportError, TypeError) as error:
            what = "has no workers" if client is not None else "does not answer"
            raise NsysPPError(
                f"the Dask scheduler `{scheduler}` {what}: {_first_line(error)}",
                "name its address, as in `tcp://node0:8786`, or the file of its `--scheduler-file`, and "
                "start workers",
            ) from None
        yield client
    finally:
        if client is not None:
            client.close(timeout=5)
        logger.setLevel(level)


def _check_workers(client: Any, item: Path, scheduler: str) -> None:
    """Check that all workers have our version and see our files; workers that go away meanwhile are skipped.

    Of an item that is to be written, they see the folder.
    """
    item = next(path for path in (item.absolute(), *item.absolute().parents) if path.exists())
    answers = client.run(_describe_worker, str(item), os.getcwd(), on_error="return")
    present = client.ncores()
    for address, answer in sorted(answers.items()):
        if isinstance(answer, Exception) and address not in present:
            continue
        if isinstance(answer, ImportError) or "ModuleNotFoundError" in str(answer):  # Dask's wording of it
            raise NsysPPError(
                f"the Dask worker `{address}` has no nsys-pp: {_first_line(answer)}",
                f"install nsys-pp {_OURS[0]} where the workers of `{scheduler}` run",
            )
        if isinstance(answer, Exception):
            raise NsysPPError(
                f"the Dask worker `{address}` cannot run nsys-pp: {_first_line(answer)}",
                "install the same versions of Python, Dask and nsys-pp there as here",
            )
        theirs, sees_item, sees_folder = answer
        if theirs != _OURS:
            raise NsysPPError(
                f"the Dask worker `{address}` has nsys-pp {theirs[0]} (format {theirs[1]}), and this is"
                f" {_OURS[0]} (format {_OURS[1]})",
                "install the same version on all",
            )
        if not (sees_item and sees_folder):
            unseen = item if not sees_item else os.getcwd()
            raise NsysPPError(
                f"the Dask worker `{address}` does not see `{unseen}`",
                "reports and outputs must lie in a file system that all workers have under the same path",
            )


def _describe_worker(item: str, folder: str) -> tuple[tuple[str, int], bool, bool]:
    return _OURS, os.path.exists(item), os.path.isdir(folder)


def _as_finished(client: Any, futures: Iterable[Any], scheduler: str) -> Iterator[Any]:
    # as they finish, fail or are lost
    finished: SimpleQueue[Any] = SimpleQueue()
    waiting = list(futures)
    for future in waiting:
        future.add_done_callback(finished.put)
    seen = time.monotonic()  # last time with a worker
    for _ in waiting:
        while True:
            with suppress(Empty):
                yield finished.get(timeout=_POLL_S)
                break
            with suppress(Exception):  # the scheduler is gone, in one of many ways
                if client.ncores():
                    seen = time.monotonic()
            if time.monotonic() - seen > _ABANDONED_S:
                raise NsysPPError(
                    f"the Dask scheduler `{scheduler}` has no workers any more",
                    "see in their logs why they ended; they may need more memory",
                )
        seen = time.monotonic()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
