"""Runs among reports: groups of captures close in time."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_pp.frames.report import Session
from nsys_pp.frames.roster import capture_window
from nsys_pp.units import NS_PER_S

MAX_GAP_NS = 60 * NS_PER_S


def split_runs(sessions: Sequence[Session]) -> list[list[int]]:
    """Group captures close in time.

    Returns:
        Indices of `sessions` by group, the earliest first: every capture of a group overlaps an
        earlier one of the group, or begins within a minute of its end. Captures without UTC are in no group.
    """
    windows = [(capture_window(session), index) for index, session in enumerate(sessions)]
    groups: list[list[int]] = []
    last_end = 0
    for (start, end), index in sorted((window, index) for window, index in windows if window is not None):
        if not groups or start > last_end + MAX_GAP_NS:
            groups.append([])
            last_end = end
        groups[-1].append(index)
        last_end = max(last_end, end)
    return groups
