"""Time windows of steps, per device and on the CPU.

    events     [   )  [      )[    )     [   )   [  )
    steps               [ 7      )[ 8       )
    windows    [ null   )[ 7     )[ 8       )[ null )

The windows of a device, or of a process on the CPU, tile its time: without overlaps and gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.step_times import DEVICE, EVER, PROCESS, StepTimes, time_on_device, time_on_host
from nsys_pp.arrays.columns import NEVER, as_numbers, numbers, pack, pick
from nsys_pp.arrays.members import mark_members
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_rows, number_keys
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_schema, conform

DEVICE_WINDOWS = build_schema(
    {  # by process_key, device_id, start_ns; those of a device tile the time of its process
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "step": pl.Int64,  # null outside all steps
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="DEVICE_WINDOWS",
)
HOST_WINDOWS = build_schema(
    {  # by process_key, start_ns; those of a process tile its time
        "process_key": pl.Int64,
        "step": pl.Int64,  # null outside all steps
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="HOST_WINDOWS",
)


class Windows(Struct, frozen=True, kw_only=True):
    """The time of a report, by step.

    Attributes:
        device: `DEVICE_WINDOWS` of every device that has operations or steps.
        host: `HOST_WINDOWS` of every process that has events or steps.
    """

    device: pl.DataFrame
    host: pl.DataFrame


def find_windows(
    steps: pl.DataFrame,
    *,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
    ranges: pl.DataFrame,
) -> Windows:
    """Cut the time of every process, from its first to its last event, at the borders of its steps.

    Args:
        steps: `STEPS`; if empty, each device and process has one window.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        ranges: `RANGES`.

    Returns:
        Windows: of a step on a device, `[start_ns, end_ns)`; on the CPU, its range or its jobs, or without these
        the time between the steps around it. If steps overlap, the earlier one ends when the next begins.
        The time of a process includes its steps beyond its events. No window is empty, unless it is the only
        one.
    """
    host, device = time_on_host(steps), time_on_device(steps)
    process, first, last = _find_spans([gpu_ops, api_calls, os_calls, ranges], steps)
    owners = [np.concatenate([numbers(frame[key]) for frame in (gpu_ops, steps)]) for key in DEVICE]
    distinct, _ = number_keys(pack(*owners))
    distinct = distinct[owners[0][distinct] > NEVER]
    owners = [key[distinct] for key in owners]
    at = find_rows(process, owners[0])
    of_devices = tile(device, owners, first[at], last[at])
    return Windows(
        device=conform(_frame(DEVICE, *of_devices), DEVICE_WINDOWS),
        host=conform(_frame(PROCESS, *tile(host, [process], first, last)), HOST_WINDOWS),
    )


def _find_spans(frames: Sequence[pl.DataFrame], steps: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s]:
    """Find the first and the last time of each process, in events and steps."""
    names = [("start_ns", "end_ns")] * (len(frames) + 1) + [("host_start_ns", "host_end_ns")]
    parts = []
    for frame, (start, end) in zip((*frames, steps, steps), names, strict=True):
        process, number = number_keys(numbers(frame["process_key"]))
        first, last = np.full(len(process), EVER), np.full(len(process), NEVER)
        np.minimum.at(first, number, numbers(frame[start], null=EVER))
        np.maximum.at(last, number, numbers(frame[end]))
        parts.append((numbers(frame["process_key"])[process], first, last))
    process, first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = sort_rows(process)
    begins = np.flatnonzero(np.append(True, np.diff(process[order]) != 0)[: len(order)])
    if not len(begins):
        return process, first, last
    return (
        process[order][begins],
        np.minimum.reduceat(first[order], begins),
        np.maximum.reduceat(last[order], begins),
    )


def tile(
    steps: StepTimes, owner: Sequence[Int64s], first: Int64s, last: Int64s
) -> tuple[list[Int64s], Int64s, Int64s, Int64s]:
    """Cut the time [first, last) of each owner at the borders of its steps.

    Args:
        steps: Steps of processes or devices.
        owner: Keys of the owners; each is distinct.
        first: Start of the time of each owner.
        last: End of the time of each owner.

    Returns:
        Keys of the owner, step (`NEVER` outside all steps), start and end of windows that tile these times, by owner and start.
    """
    count = len(first)
    group = pack(*(np.append(key, of_step) for key, of_step in zip(owner, steps.owner, strict=True)))
    row = find_rows(group[:count], group[count:])
    start, end = (
        np.maximum(steps.start, pick(first, row, EVER)),
        np.minimum(steps.end, pick(last, row, NEVER)),
    )
    kept = np.flatnonzero((row >= 0) & (start < end))
    row, step, start, end = row[kept], steps.step[kept], start[kept], end[kept]
    # before the first step of each owner, and after each step
    begun = last.copy()
    np.minimum.at(begun, row, start)
    following = np.append(np.where(row[1:] == row[:-1], start[1:], last[row[:-1]]), last[row[-1:]])
    rows = np.concatenate([row, np.arange(count), row])
    steps_of = np.concatenate([step, np.full(count + len(row), NEVER)])
    starts, ends = np.concatenate([start, first, end]), np.concatenate([end, begun, following])
    is_alone = ~mark_members(np.arange(count), row)
    left = np.flatnonzero((starts < ends) | (is_alone[rows] & (steps_of == NEVER)))
    left = left[sort_rows(*(key[rows[left]] for key in owner), starts[left])]
    return [key[rows[left]] for key in owner], steps_of[left], starts[left], ends[left]


def _frame(
    keys: Sequence[str], owner: Sequence[Int64s], step: Int64s, start: Int64s, end: Int64s
) -> pl.DataFrame:
    columns = zip((*keys, "step", "start_ns", "end_ns"), (*owner, step, start, end), strict=True)
    return pl.DataFrame([as_numbers(name, values) for name, values in columns])
