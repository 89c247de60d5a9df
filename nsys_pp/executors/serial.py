"""Work in this process: one item after the other, in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from nsys_pp.executors.executor import Outcome


class SerialExecutor:
    """Works on an item when it is asked for."""

    is_local = True

    def map(self, work: Callable[[Path], Any], items: Sequence[Path]) -> Generator[Outcome, None, None]:
        """Work on one item after the other; nothing needs to be picklable."""
        for place, item in enumerate(items):
            try:
                done = Outcome(place=place, value=work(item))
            except Exception as error:
                done = Outcome(place=place, error=error)
            yield done
