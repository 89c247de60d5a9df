"""Time of messages and collectives that is either a wait or a transfer."""

from __future__ import annotations

UNSPLIT = ("message", "collective")


def split_either(found: dict[str, int], true: dict[str, int]) -> dict[str, int]:
    """Give the unsplit time of a step to waits and transfers, as far as the truth has more of them.

    Args:
        found: Cause -> time.
        true: Likewise, without unsplit time.

    Returns:
        Cause -> time; what is left of the unsplit time is wrong.
    """
    split = dict(found)
    for need in UNSPLIT:
        for cause in (f"{need}_wait", f"{need}_transfer"):
            given = min(split.get(need, 0), max(true.get(cause, 0) - split.get(cause, 0), 0))
            if given:
                split[cause], split[need] = split.get(cause, 0) + given, split[need] - given
    return split
