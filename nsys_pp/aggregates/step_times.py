"""Disjoint times of steps, on devices and on the CPU, as arrays, and the step of a moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, as_numbers, numbers, pack, pick
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.scratch_frames import map_blocks
from nsys_pp.arrays.search import find_last
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Int64s

PROCESS = ("process_key",)
DEVICE = ("process_key", "device_id")
EVER = np.int64(1 << 62)
"""Later than any time."""


def sort_last(step: Int64s) -> Int64s:
    """Return a key that sorts steps by number, and the time outside all steps (`NEVER`) last."""
    return np.where(step == NEVER, EVER, step)


class StepTimes(Struct, frozen=True):
    """Steps of each owner, a process or a device, by owner and start: not empty, and without overlaps."""

    owner: tuple[Int64s, ...]  # keys of the owner
    step: Int64s
    start: Int64s
    end: Int64s

    def find(self, owner: Sequence[Int64s], time: Int64s) -> Int64s:
        """Find the step around each moment of an owner; `NEVER` outside all steps.

        Args:
            owner: Keys of the owner of each moment.
            time: The moments; `NEVER` where unknown.
        """
        count = len(self.step)
        if not count:
            return np.full(len(time), NEVER)
        group = pack(*(np.append(own, other) for own, other in zip(self.owner, owner, strict=True)))
        row = find_last(group[count:], time, group[:count], self.start)
        row[time >= self.end[row]] = -1
        return pick(self.step, row, NEVER)


def time_on_device(steps: pl.DataFrame) -> StepTimes:
    """List the disjoint steps of devices, of `STEPS`."""
    columns = ("step", "start_ns", "end_ns")
    return _cut([numbers(steps[name]) for name in DEVICE], *(numbers(steps[name]) for name in columns))


def time_on_host(steps: pl.DataFrame) -> StepTimes:
    """List the disjoint steps of processes on the CPU, of `STEPS`; an unknown border is infinitely far.

    A step has the hull of its times on all devices. Without a time on the CPU, it has the time between the steps around it.
    """
    process, step, start = (numbers(steps[name]) for name in (*PROCESS, "step", "start_ns"))
    begin, end = numbers(steps["host_start_ns"], null=EVER), numbers(steps["host_end_ns"])
    order = sort_rows(process, step)
    process, step = process[order], step[order]
    first = np.flatnonzero(
        np.append(True, (process[1:] != process[:-1]) | (step[1:] != step[:-1]))[: len(order)]
    )
    if len(first) < len(order):
        process, step = process[first], step[first]
        start, begin = (np.minimum.reduceat(times[order], first) for times in (start, begin))
        end = np.maximum.reduceat(end[order], first)
    else:
        start, begin, end = start[order], begin[order], end[order]
    order = sort_rows(process, start, step)
    process, step, begin, end = process[order], step[order], begin[order], end[order]
    group = np.cumsum(np.append(False, process[1:] != process[:-1])[: len(process)])
    previous = running_maximum(group, end)  # and of the step itself
    following = -running_maximum(group.max(initial=0) - group[::-1], -begin[::-1])[::-1]
    has_begin, has_end = begin < EVER, end > NEVER
    since = np.where(has_begin, begin, np.maximum(previous, NEVER + 1))
    return _cut([process], step, since, np.where(has_end, end, following))


def step_on_device(frame: pl.DataFrame, steps: pl.DataFrame, *, time: str = "start_ns") -> pl.Series:
    """Return the step of each row on its device.

    Args:
        frame: process_key, device_id and `time`; any order.
        steps: `STEPS`.
        time: Column with the moment of a row.

    Returns:
        Int64 `step`, one per row; null outside all steps, and where the device or the time is null.
    """
    return _look_up(frame, time_on_device(steps), DEVICE, time)


def step_on_host(frame: pl.DataFrame, steps: pl.DataFrame, *, time: str = "start_ns") -> pl.Series:
    """Return the step of each row (process_key and `time`) on the CPU, as `step_on_device` does."""
    return _look_up(frame, time_on_host(steps), PROCESS, time)


def _look_up(frame: pl.DataFrame, times: StepTimes, keys: Sequence[str], time: str) -> pl.Series:
    moments, owner = frame[time].cast(pl.Int64), [frame[key] for key in keys]

    def find(first: int, stop: int) -> Int64s:
        return times.find([numbers(key[first:stop]) for key in owner], numbers(moments[first:stop]))

    return as_numbers("step", map_blocks(len(frame), np.int64, find))


def _cut(owner: Sequence[Int64s], step: Int64s, start: Int64s, end: Int64s) -> StepTimes:
    """End each step when the next one of its owner begins; drop empty steps, and those without an owner or a time."""
    is_kept = (start > NEVER) & (start < end)
    for key in owner:
        is_kept &= key > NEVER
    rows = np.flatnonzero(is_kept)
    rows = rows[sort_rows(*(key[rows] for key in owner), start[rows], step[rows])]
    keys, begin = tuple(key[rows] for key in owner), start[rows]
    is_same = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for key in keys:
        is_same &= key[1:] == key[:-1]
    until = np.append(np.where(is_same, begin[1:], EVER), EVER)[: len(rows)]
    stop = np.minimum(end[rows], until)
    left = np.flatnonzero(begin < stop)
    return StepTimes(tuple(key[left] for key in keys), step[rows][left], begin[left], stop[left])
