"""Which reports can be of one run: those whose captures lie together in time."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.frames.report import Session
from nsys_pp.roster.identity import capture_window
from nsys_pp.units import NS_PER_S

MOST_APART_NS = 60 * NS_PER_S


def split_runs(sessions: Sequence[Session]) -> list[list[int]]:
    """Group captures that lie together in time.

    Returns:
        Places among `sessions`, by group, the earliest first: every capture of a group overlaps an
        earlier one of it, or begins within a minute of its end. Captures without UTC are in none.
    """
    windows = [(capture_window(session), place) for place, session in enumerate(sessions)]
    groups: list[list[int]] = []
    last_end = 0
    for (start, end), place in sorted((window, place) for window, place in windows if window is not None):
        if not groups or start > last_end + MOST_APART_NS:
            groups.append([])
            last_end = end
        groups[-1].append(place)
        last_end = max(last_end, end)
    return groups
