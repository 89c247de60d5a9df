"""How a command tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done, 0 to 1; a `Share` also has the counts."""


class Share(float):
    """The share that is done, and what it is a share of.

    >>> share = Share.of(3, 12, doing="drawing")
    >>> share, share.done, share.total, share.doing
    (0.25, 3, 12, 'drawing')
    """

    done: int  # reports
    total: int
    doing: str  # what is done to them: the phase of the work

    @classmethod
    def of(cls, done: int, total: int, *, doing: str, value: float | None = None) -> Share:
        """Make the share of so many; another value where they are a part of the whole work."""
        share = cls(done / total if value is None else value)
        share.done, share.total, share.doing = done, total, doing
        return share


def tell(progress: Progress | None, what: str, share: float) -> None:
    """Tell what is being done, if anyone listens."""
    if progress is not None:
        progress(what, share)


def share_of(progress: Progress | None, number: int, count: int) -> Progress:
    """Return what the work on one of several inputs tells, so that its share becomes its part of all."""

    def pass_on(what: str, share: float) -> None:
        value = (number + share) / count
        if isinstance(share, Share):
            value = Share.of(share.done, share.total, doing=share.doing, value=value)
        tell(progress, what, value)

    return pass_on
