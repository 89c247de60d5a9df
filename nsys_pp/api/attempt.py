"""Going through inputs of which some may be broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from nsys_pp.api.progress import Progress, tell
from nsys_pp.errors import NsysPPError, OutputError

T = TypeVar("T")
Skipped = list[tuple[Path, NsysPPError]]


class Attempt:
    """Works on inputs one by one and, where that is wanted, leaves out those that fail.

    Args:
        paths: All inputs.
        keep_going: Leave out what fails, but not the only input, nor all of them.
        progress: Told what is going on.
    """

    def __init__(self, paths: Sequence[Path], *, keep_going: bool, progress: Progress | None) -> None:
        self._paths = list(paths)
        self._keeps_going = keep_going and len(paths) > 1
        self._progress = progress
        self._failed: dict[Path, NsysPPError] = {}

    @property
    def skipped(self) -> Skipped:
        """What was left out, with what is wrong with it."""
        return [(path, self._failed[path]) for path in self._paths if path in self._failed]

    def leave_out(self, path: Path, error: NsysPPError) -> None:
        """Leave out an input, where that is wanted.

        Raises:
            NsysPPError: It must not be left out.
        """
        if not self._keeps_going:
            raise error
        self._failed[path] = error

    def each(self, doing: str, paths: Sequence[Path], work: Callable[[Path], T]) -> dict[Path, T]:
        """Return what comes of each path that has not failed, now or before.

        Raises:
            NsysPPError: One failed and must not be left out, or all failed.
        """
        done: dict[Path, T] = {}
        for number, path in enumerate(paths):
            if path in self._failed:
                continue
            tell(self._progress, f"{doing} {path.name}", number / len(paths))
            try:
                done[path] = work(path)
            except OutputError:
                raise
            except NsysPPError as error:
                if not self._keeps_going:
                    raise
                self._failed[path] = error
        if len(self._failed) == len(self._paths):
            raise self.skipped[0][1]
        return done
