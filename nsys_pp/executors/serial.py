"""Executor in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsys_pp.executors.executor import Outcome, as_exception, call


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
