"""A program that calls all functions of a library of `core.c` with random inputs: the file's path, number of inputs."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from nsys_pp.arrays.core import Core
from nsys_pp.arrays.types import Int64s
from tests.arrays.nested_slices import draw_nested_slices
from tests.arrays.owned_intervals import draw_intervals, draw_windows


def find_near(core: Core, wanted: tuple[Int64s, ...], events: tuple[Int64s, ...]) -> None:
    """Find the nearest of events in any order: any result, but no other memory."""
    wanted, events = (tuple(map(np.ascontiguousarray, columns)) for columns in (wanted, events))
    found = np.empty(len(wanted[0]), dtype=np.int64)
    for is_first, is_before in ((0, 0), (0, 1), (1, 0)):
        core.find_nearest(
            *(len(found), *wanted[:2]), *(len(events[0]), *events[:2]), is_first, is_before, found
        )
    core.find_launched(*(len(found), *wanted[:3]), *(len(events[0]), *events[:3]), 4, found)


def main() -> None:
    """Call each function."""
    core = Core(ctypes.CDLL(sys.argv[1]))
    for seed in range(int(sys.argv[2])):
        start, end, parent = draw_nested_slices(seed)
        core.sort_rows(parent, start, end)
        intervals, following = draw_intervals(seed), draw_intervals(seed, following=True)
        core.find_first_rows(intervals[0])
        core.number_keys(intervals[0])
        core.find_parents(*intervals)
        core.find_windows(intervals, following)
        core.find_windows(
            following, intervals
        )  # neither grouped nor in order: any result, but no other memory
        core.search(following[1], intervals[1])
        find_near(core, intervals, following)
        core.order_by_number(np.abs(intervals[1]) % 50, 50)
        windows = draw_windows(seed)
        core.find_extremes(*windows)
        core.measure_unions(*windows)
        core.measure_unions(*windows[:2], *(column[windows[2] >= 1] for column in windows[2:]), middle=1)
    many = np.arange(70_000)  # more keys than are numbered
    core.find_first_rows(many)
    core.number_keys(many)
    core.order_by_time(many, many, many)
    core.find_windows((many, many, many), (many, many, many))
    core.measure_unions(many * 7919 % 70_000, many * 7919 % 70_000 + 900, many // 2, many + 1)
    print(int(sys.argv[2]))


if __name__ == "__main__":
    main()
