"""What goes through items, wherever that is: the contract of the modules beside."""

from __future__ import annotations

import pickle
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one item: a value, or the error that its work ended with."""

    place: int  # of the item among all
    value: Any = None
    error: Exception | None = None
    traceback: str = ""  # of an error in another process
    warned: tuple[Warning, ...] = ()  # in other processes, in that order; what warned in this one is told


class Executor(Protocol):
    """Goes through items."""

    @property
    def is_local(self) -> bool:
        """Whether work runs in this process, one item after the other."""

    def map(self, work: Callable[[Path], Any], items: Sequence[Path]) -> Generator[Outcome, None, None]:
        """Work on all items, and give what came of each as soon as it is there.

        Where work does not run here, `work` and what comes of it must be picklable: functions of
        modules, and partials of these. To close the iterator is to stop all work.

        Raises:
            NsysPPError: There is nobody to work.
        """


class RemoteTraceback(Exception):  # noqa: N818  (shown as the cause of an error)
    """Where in another process an error came from."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def batch(work: Callable[[Path], Any], item: Path, place: int) -> Outcome:
    """Work on one item in a process that is not that of the caller."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value, error, text = None, None, ""
        try:
            value = work(item)
        except Exception as raised:
            error, text = _portable(raised), traceback.format_exc()
    warned = tuple(one.message for one in caught if isinstance(one.message, UserWarning))
    return Outcome(place=place, value=value, error=error, traceback=text, warned=warned)


def _portable(error: Exception) -> Exception:
    """Give an error that can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
