"""Progress inside one report: the stages of its work report their shares to a follower.

The follower is in a context variable, so that no function between the two needs a parameter for it. Without one, nothing
happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

Follower = Callable[[str, float], None]
"""Receives the current work and the finished share of the report, 0 to 1."""


class _Stage(Struct):
    follower: Follower
    begin: float = 0.0  # share of the report that is finished before the stage
    end: float = 1.0  # and after it


_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextmanager
def follow_stages(follower: Follower) -> Iterator[None]:
    """Call a function with the progress of the report that is processed inside the context, in this thread."""
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
