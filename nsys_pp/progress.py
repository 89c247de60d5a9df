"""Progress of a command.

The current activity and the finished share, and those of the stages inside one report.

The follower of a report is in a context variable, so that no function between the two needs a parameter for
it. Without one, nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Callback: receives the current activity and the finished share of its phase, 0 to 1. A `Share` has also the
# phase and the counts. A new phase begins at 0.
Progress = Callable[[str, float], None]


class Share(float):
    """A finished share with its counts.

    >>> share = Share.of(3, 12, doing="drawing")
    >>> share, share.done, share.total, share.doing
    (0.25, 3, 12, 'drawing')
    """

    done: int  # reports
    total: int
    doing: str  # phase of the work, as in "reading"

    @classmethod
    def of(cls, done: int, total: int, *, doing: str, value: float | None = None) -> Share:
        """Build the share of a count; `value` replaces it where the count covers a part of the work."""
        share = cls(done / total if value is None else value)
        share.done, share.total, share.doing = done, total, doing
        return share


def report_progress(progress: Progress | None, activity: str, share: float) -> None:
    """Call a progress callback, if there is one."""
    if progress is not None:
        progress(activity, share)


def split_progress(progress: Progress | None, number: int, count: int) -> Progress:
    """Return the callback of one of several equal parts of the work."""

    def forward(activity: str, share: float) -> None:
        value = (number + share) / count
        if isinstance(share, Share):
            value = Share.of(share.done, share.total, doing=share.doing, value=value)
        report_progress(progress, activity, value)

    return forward


@dataclass(slots=True)
class _Stage:
    follower: Progress
    begin: float = 0.0  # share of the report that is finished before the stage
    end: float = 1.0  # and after it


_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextmanager
def follow_stages(follower: Progress) -> Iterator[None]:
    """Call a function with the progress of the report that the context processes, in this thread."""
    token = _stage.set(_Stage(follower))
    try:
        yield
    finally:
        _stage.reset(token)


def enter_stage(work: str, begin: float, end: float) -> None:
    """Begin a stage of a report.

    Args:
        work: Text for the user, as "projecting".
        begin: Share of the report that is finished before it, 0 to 1.
        end: Share after it.
    """
    if (stage := _stage.get()) is not None:
        stage.begin, stage.end = begin, end
        stage.follower(work, begin)


def report_stage(work: str, share: float) -> None:
    """Report the finished share of the current stage, 0 to 1."""
    if (stage := _stage.get()) is not None:
        stage.follower(work, stage.begin + share * (stage.end - stage.begin))
