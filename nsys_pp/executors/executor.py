"""Executors: the interface of the modules in this folder, and the outcome of an item."""

from __future__ import annotations

import pickle
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

_CONTROL = (KeyboardInterrupt, SystemExit, GeneratorExit)


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

    @property
    def is_remote(self) -> bool:
        """Whether calls run on other machines, which see the same files."""

    def map(
        self, work: Callable[..., Any], items: Sequence[Path], own: Mapping[Path, Any] | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item as soon as it is ready, in any order; closing stops all work.

        Unless `is_local`, `work`, its second arguments and its results must be picklable: functions of
        modules, and partials of these. If `is_remote`, `work` is sent with each call, and of the second
        arguments the own one.

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


def select_own(own: Mapping[Path, Any] | None, item: Path) -> dict[Path, Any] | None:
    """Return the second argument of one item, to be sent with it."""
    return None if own is None else {item: own[item]}


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
            error, text = _make_portable(as_exception(raised)), traceback.format_exc()
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
    if isinstance(error, _CONTROL):
        raise error
    portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.__cause__ = error
    return portable


def _make_portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class SerialExecutor:
    """Executor in this process: one item after the other, each when its outcome is asked for."""

    is_local = True
    is_remote = False

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
