"""A program that calls all functions of a library of `core.c` with random inputs: the file's path, number of inputs."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

import numpy as np
from nsys_pp.arrays.insertion import insert_rows
from nsys_pp.arrays.line_finder import find_lines, sum_sections
from nsys_pp.arrays.near_lines import ContradictingPoints, fit_starts, list_starts, weigh_lines
from nsys_pp.arrays.votes import collect_votes

from nsys_pp.arrays.byte_rows import (
    join_slices,
    number_slices,
    read_fields,
    read_number_rows,
    read_numbers,
    read_runs,
)
from nsys_pp.arrays.core import Core
from nsys_pp.arrays.packet_writer import join_tails, write_records
from nsys_pp.arrays.types import Int64s
from nsys_pp.write.perfetto.packets import lay_out_group
from nsys_pp.write.trace.strings import NULL
from tests.arrays.byte_rows import damage_rows, draw_rows
from tests.arrays.near_points import NearPoints, build_finder, draw_near_points, find_near_points
from tests.arrays.nested_slices import draw_nested_slices
from tests.arrays.owned_intervals import draw_intervals, draw_windows
from tests.arrays.packet_blocks import draw_block
from tests.arrays.row_columns import write_random_planes, write_random_rows


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
    """Call each function; parents that do not contain their slice are left out, as in `pack_nested`."""
    core = Core(ctypes.CDLL(sys.argv[1]))
    for seed in range(int(sys.argv[2])):
        start, end, parent = draw_nested_slices(seed)
        around = np.maximum(parent, 0)
        is_inside = (parent >= 0) & (start[around] <= start) & (end <= end[around]) & (end > start)
        core.pack_flat(start, end)
        core.order_events(start, end, np.arange(len(start), dtype=np.int32) % 3)
        core.order_events(start, end, np.full(len(start), 600, dtype=np.int32))
        core.pack_nested(start, end, np.where(is_inside, parent, -1))
        core.sort_rows(parent, start, end)
        core.number_codes(np.where(is_inside, NULL, start).astype(np.uint32), null=NULL)
        intervals, following = draw_intervals(seed), draw_intervals(seed, following=True)
        core.find_first_rows(intervals[0])
        write_random_rows(core, seed)
        write_random_planes(core, seed)
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
        write_records(core, [lay_out_group(group) for group in draw_block(seed).groups])
        join_tails(core, np.zeros((2, 3), dtype=np.uint8), np.array([0, seed % 9]), b"x" * (seed % 9))
        rows, codes, kinds, _ = draw_rows(seed)
        changed, width = damage_rows(seed, rows), codes.shape[1]
        for count in (1, 3):
            read_numbers(core, changed.buffer, changed.starts, count)
        for some in (rows, changed):
            read_fields(core, some, width, kinds)
            read_number_rows(core, some.buffer, some.headers, some.starts, width)
            counts = some.kept.clip(0)
            read_runs(core, some.buffer, some.starts, counts, counts, counts * 0, 1 << 15)
        join_slices(core, rows.buffer, rows.starts, rows.kept)
        number_slices(core, rows.buffer, rows.starts, rows.kept)
        with suppress(ValueError):  # a slice that is not in the buffer
            number_slices(core, changed.buffer, changed.starts, changed.kept)
        points = draw_near_points(seed)
        find_near_points(core, points)
        for starts in (0, 3, 8):
            build_finder(core, points).weigh((-3.0, 0.0, 0.0), points.tolerance, 2.0, 1.5, starts=starts)
        _weigh_lines(core, points, np.random.default_rng(seed))
        _vote(core, np.random.default_rng(seed))
        at = np.sort(intervals[0] % (len(start) + 1))
        insert_rows(core, [start, end.astype(np.float64)], at, [at, at.astype(np.float64)])
    many = np.arange(70_000)  # more keys than are numbered
    core.find_first_rows(many)
    core.number_keys(many)
    core.order_by_time(many, many, many)
    core.find_windows((many, many, many), (many, many, many))
    core.measure_unions(many * 7919 % 70_000, many * 7919 % 70_000 + 900, many // 2, many + 1)
    print(int(sys.argv[2]))


def _weigh_lines(core: Core, points: NearPoints, random: np.random.Generator) -> None:
    """Weigh lines, fit lines to their starts, and find lines through points."""
    finder, count = build_finder(core, points), len(points.key)
    lines = random.integers(-9, 9, (4, 3)) * np.array([1.0, 1e-3, 1.0])
    keys = np.unique(points.other_key)
    tested = np.flatnonzero(np.isin(points.key, keys))
    tested = tested[np.argsort(points.key[tested], kind="stable")]
    bounds = np.searchsorted(points.key[tested], np.append(keys, 9))
    against = ContradictingPoints(point=tested, bounds=bounds, most=3.0)
    weigh_lines(finder, lines, points.tolerance, 2.0, np.array([1.0, 4.0]), tested=against)
    starts = list_starts(finder, lines, points.tolerance, 2.0, 1.5, 3, tested=against)
    fit_starts(
        finder, starts, points.tolerance, 2.0, scatter=1.5, floor=1.0, drift=1.0, rounds=3, tested=against
    )
    rows = random.integers(0, max(count, 1), 30 * (count > 0))
    sections = np.arange(0, len(rows) + 1, 10)
    find_lines(core, points.predicted, points.predicted, rows, sections, 2.0, most=0.5, most_rates=9)
    sum_sections(core, points.predicted[rows], sections)


def _vote(core: Core, random: np.random.Generator) -> None:
    """Collect votes of voters for any windows of others."""
    voters, others = random.integers(0, 60, 2)
    low = random.integers(0, others + 1, voters)
    collect_votes(
        core,
        end=random.integers(0, 99, voters).astype(np.float64),
        expected=random.integers(0, 99, voters).astype(np.float64),
        channel=random.integers(0, 5, voters),
        low=low,
        high=low + random.integers(0, others - low + 1),
        times=random.integers(0, 99, others) * float(random.choice([1e-9, 1.0, 1e9])),
        other_channel=random.integers(0, 5, others),
        half_width=float(random.choice([9.0, 1e12])),
        width=float(random.choice([1e-3, 9.0])),
        drift=float(random.choice([0.0, 1.0])),
        sufficient=int(random.integers(1, 9)),
        near=float(random.integers(0, 9)),
    )


if __name__ == "__main__":
    main()
