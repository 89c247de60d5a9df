"""Executor in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from nsys_pp.executors.executor import Outcome, as_exception


class SerialExecutor:
    """Executor in this process: one item after the other, each when its outcome is asked for."""

    is_local = True

    def map(self, work: Callable[[Path], Any], items: Sequence[Path]) -> Generator[Outcome, None, None]:
        """Yield the outcome of each item in order; nothing needs to be picklable."""
        for index, item in enumerate(items):
            try:
                outcome = Outcome(index=index, value=work(item))
            except BaseException as error:
                outcome = Outcome(index=index, error=as_exception(error))
            yield outcome
