"""Going through inputs of which some may be broken."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nsys_pp.compose.progress import Progress, Share, tell
from nsys_pp.errors import NsysPPError, OutputError
from nsys_pp.executors.executor import Executor, Outcome, RemoteTraceback
from nsys_pp.executors.serial import SerialExecutor

T = TypeVar("T")
Skipped = list[tuple[Path, NsysPPError]]


class Batch:
    """Works on inputs and, where that is wanted, leaves out those that fail.

    Args:
        paths: All inputs.
        keep_going: Leave out what fails, but not the only input, nor all of them.
        progress: Told what is going on.
        workers: Who does what is heavy; this process, one by one, if None.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        keep_going: bool,
        progress: Progress | None,
        workers: Executor | None = None,
    ) -> None:
        self._paths = list(paths)
        self._keeps_going = keep_going and len(paths) > 1
        self._progress = progress
        self._workers = workers or SerialExecutor()
        self._failed: dict[Path, NsysPPError] = {}

    @property
    def is_local(self) -> bool:
        """Whether heavy work runs in this process, so that it may share what is here."""
        return self._workers.is_local

    @property
    def skipped(self) -> Skipped:
        """What was left out, with what is wrong with it."""
        return [(path, self._failed[path]) for path in self._paths if path in self._failed]

    def skip(self, path: Path, error: NsysPPError) -> None:
        """Leave out an input, where that is wanted.

        Raises:
            NsysPPError: It must not be left out.
        """
        if not self._keeps_going:
            raise error
        self._failed[path] = error

    def each(self, doing: str, paths: Sequence[Path], work: Callable[[Path], T]) -> dict[Path, T]:
        """Return what comes of each path that has not failed, now or before, one by one in this process.

        Raises:
            NsysPPError: One failed and must not be left out, or all failed.
        """
        return self._go_through(doing, paths, work, SerialExecutor())

    def spread(self, doing: str, paths: Sequence[Path], work: Callable[[Path], T]) -> dict[Path, T]:
        """Do the same wherever there are workers: `work` and its results must be picklable.

        Whoever is the first to finish, results are in order of `paths`, and so are warnings; and of
        several errors that may not be left out, that of the first path is raised.

        Raises:
            NsysPPError: As above, or nobody can work.
        """
        return self._go_through(doing, paths, work, self._workers)

    def _go_through(
        self, doing: str, paths: Sequence[Path], work: Callable[[Path], T], workers: Executor
    ) -> dict[Path, T]:
        todo = [path for path in paths if path not in self._failed]
        come: dict[int, Outcome] = {}
        first = 0  # of what has not come
        results = workers.map(work, todo)
        try:
            while first < len(todo):
                what = f"{doing} {todo[first].name}"
                tell(self._progress, what, Share.of(len(come), len(todo), doing=doing))
                done = next(results)
                come[done.place] = done
                while first in come:
                    self._settle(todo[first], come[first])
                    first += 1
        finally:
            results.close()
        if len(self._failed) == len(self._paths):
            raise self.skipped[0][1]
        return {path: come[place].value for place, path in enumerate(todo) if path not in self._failed}

    def _settle(self, path: Path, done: Outcome) -> None:
        """Say what was said of a path; raise what was raised, unless it may be left out."""
        for warned in done.warned:
            warnings.warn(warned, stacklevel=5)
        if done.error is None:
            return
        if isinstance(done.error, NsysPPError) and not isinstance(done.error, OutputError):
            self.skip(path, done.error)
            return
        if done.traceback:
            raise done.error from RemoteTraceback(done.traceback)
        raise done.error
