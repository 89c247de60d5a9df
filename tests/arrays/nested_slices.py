"""Random nested slices, and a program that packs them with a library of `core.c`: the file's path, number of inputs."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Int64s
from nsys_pp.write.trace.strings import NULL


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


def main() -> None:
    """Pack random slices; parents that do not contain their slice are left out, as in `pack_nested`."""
    core = Core(ctypes.CDLL(sys.argv[1]))
    for seed in range(int(sys.argv[2])):
        start, end, parent = draw_nested_slices(seed)
        around = np.maximum(parent, 0)
        is_inside = (parent >= 0) & (start[around] <= start) & (end <= end[around]) & (end > start)
        core.pack_flat(start, end)
        core.pack_nested(start, end, np.where(is_inside, parent, -1))
        core.sort_rows(parent, start, end)
        core.number_codes(np.where(is_inside, NULL, start).astype(np.uint32), null=NULL)
    print(int(sys.argv[2]))


if __name__ == "__main__":
    main()
