"""Random nested slices."""

from __future__ import annotations

import numpy as np

from nsys_pp.arrays.types import Int64s


def draw_nested_slices(seed: int) -> tuple[Int64s, Int64s, Int64s]:
    """Draw slices, in any order: start, end, and row of a slice around each, which mostly contains it, or -1."""
    random = np.random.Generator(np.random.PCG64(seed))
    count, last = int(random.integers(0, 40)), int(random.choice([3, 8, 20, 60]))
    start = random.integers(0, last, count)
    end = start + random.integers(0, int(random.choice([3, last + 1])), count)
    parent = np.array([random.integers(-1, row) if row else -1 for row in range(count)], dtype=np.int64)
    for row in np.flatnonzero((parent >= 0) & (random.random(count) < 0.9)).tolist():
        start[row] = random.integers(start[parent[row]], end[parent[row]] + 1)
        end[row] = random.integers(start[row], end[parent[row]] + 1)
    order = random.permutation(count)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    moved = np.array([place[above] if above >= 0 else -1 for above in parent[order]], dtype=np.int64)
    return start[order], end[order], moved
