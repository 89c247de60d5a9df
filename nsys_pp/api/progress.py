"""How a command tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done, 0 to 1."""


def tell(progress: Progress | None, what: str, share: float) -> None:
    """Tell what is being done, if anyone listens."""
    if progress is not None:
        progress(what, share)


def share_of(progress: Progress | None, number: int, count: int) -> Progress:
    """Return what the work on one of several inputs tells, so that its share becomes its part of all."""
    return lambda what, share: tell(progress, what, (number + share) / count)
