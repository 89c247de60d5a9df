"""Progress of a command: the current activity, and the finished share."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Callback: receives the current activity and the finished share of its phase, 0 to 1; a `Share` has also the phase
and the counts. A new phase begins at 0."""


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
