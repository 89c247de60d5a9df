"""Verdict of a merged run, built while its rows are drawn and written, which leaves a second processor idle."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from nsys_pp.arrays.scratch import share_scratch
from nsys_pp.arrays.threads import count_processors
from nsys_pp.frames.training import Training
from nsys_pp.frames.verdict import Verdict

_FEWEST = 5_000  # jobs; the verdict on fewer takes some ms
_MOST = 5_000_000  # jobs; on more, both stages at once take much memory


class VerdictBuilder:
    """Builder of the verdict of a run; as a context, it may build in another thread."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._later: Future[Verdict] | None = None

    def __enter__(self) -> VerdictBuilder:
        """Return the builder."""
        return self

    def __exit__(self, *raised: Any) -> None:
        """Wait for the thread."""
        self._stack.close()

    def begin(self, training: Training) -> None:
        """Begin to build the verdict in another thread, if that takes some time and there is a processor for it."""
        if count_processors() >= 2 and _FEWEST <= len(training.jobs) <= _MOST:
            pool = self._stack.enter_context(ThreadPoolExecutor(1, initializer=share_scratch()))
            self._later = pool.submit(_build, training)

    def finish(self, training: Training) -> Verdict:
        """Return the verdict."""
        return _build(training) if self._later is None else self._later.result()


def _build(training: Training) -> Verdict:
    """Build the verdict of a training; a report without jobs has none, and so needs no time for it."""
    if training.jobs.is_empty():
        return Verdict()
    from nsys_pp.tables.verdict.verdict import build_verdict

    return build_verdict(training)
