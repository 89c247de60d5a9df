"""Random intervals of owners, and random windows of intervals."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s

Columns = tuple[Int64s, Int64s, Int64s]  # owner, start, end


def draw_intervals(seed: int, *, following: bool = False) -> Columns:
    """Draw intervals in any order, of which many share an owner, a start or an end.

    Args:
        seed: Of the random numbers.
        following: Those of an owner follow each other, by owner and start.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    count, most = int(random.integers(0, 60)), int(random.choice([2, 8, 40, 1 << 40]))
    keys = random.integers(-(1 << 62), 1 << 62, int(random.choice([1, 2, 5, 90])))
    owner = random.choice(keys, count)
    start = random.integers(-most, most, count)
    end = start + random.integers(0, most, count)
    if following:
        edges = np.sort(random.integers(-most, most, 2 * count))
        owner, start, end = np.sort(owner), edges[0::2], edges[1::2]
    elif random.random() < 0.5:  # as in reports: in order of time
        order = np.argsort(start, kind="stable")
        owner, start, end = owner[order], start[order], end[order]
    return owner, start, end


def draw_windows(seed: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Draw intervals, start and end of each, and windows of these: first, and after the last."""
    random = np.random.Generator(np.random.PCG64(seed))
    count, most = int(random.choice([1, 5, 30, 200])), int(random.choice([2, 30, 5_000, 1 << 60]))
    start = random.integers(-most, most, count)
    if random.random() < 0.5:
        start = np.sort(start)
    end = start + random.integers(0, int(random.choice([2, most])), count)
    bounds = np.sort(random.integers(0, count + 1, (int(random.integers(0, 60)), 2)), axis=1)
    first, last = bounds[bounds[:, 0] < bounds[:, 1]].T.copy()
    return start, end, first, last
