"""Idle time of devices and streams, by cause.

    calls     [ launch B )                         [ launch C )
    stream  [ A  )          [ B        )                           [ C )
                 ^ other: B was launched before    ^ host_late: C was launched after the gap had begun

The cause of a gap follows from the operation that ends it: its call came too late, or it waited for something else.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.aggregates.step_times import sort_last
from nsys_pp.arrays.columns import NEVER, as_numbers, find_distinct, numbers, pack, pick
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.records import join_rows, select_rows
from nsys_pp.arrays.search import number_keys
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import IDLE_CAUSE, IDLE_TIMES, KERNEL_WAIT_NS
from nsys_pp.frames.conform import conform

_DEVICE = ("process_key", "device_id")
_EDGES, _HOST_LATE, _KERNEL_WAIT, _OTHER, _UNKNOWN = range(len(IDLE_CAUSE.categories))


def find_idle(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame, windows: pl.DataFrame
) -> pl.DataFrame:
    """Find the gaps of each device, and the gaps between the operations of each stream.

    Causes are those of HolisticTraceAnalysis, in this order: "unknown" if the call of the operation that ends the gap
    is unknown; "host_late" if that call began after the gap; "kernel_wait" if the gap is shorter than
    `KERNEL_WAIT_NS`; else "other". If several operations end a gap, the first in `GPU_OPS` counts.

    Args:
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        windows: `DEVICE_WINDOWS`; they cover all operations.

    Returns:
        `IDLE_TIMES`, by device, stream (the device first), step (null last) and cause. A gap that crosses a border
        between windows adds its pieces to both, and to `count` where it begins: rows may have
        count 0. For each device and step, causes of the device add up to `span_ns` - `busy_ns` of `GPU_TIMES`.
    """
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    columns = ("context_id", "stream_id", "start_ns", "end_ns")
    context, stream, start, end = (numbers(gpu_ops[name]) for name in columns)
    launch = pick(numbers(api_calls["start_ns"]), call, NEVER)
    ops = _Ops(context, stream, start, end, launch)
    process, device = (numbers(gpu_ops[name]) for name in _DEVICE)
    of_process, of_device, step, first, last = (
        numbers(windows[name]) for name in (*_DEVICE, "step", "start_ns", "end_ns")
    )
    begins = number_keys(pack(of_process, of_device))[0].tolist()
    parts = []
    for begin, until in pairwise([*begins, len(windows)]):
        own = slice(begin, until)
        of_own = select_rows(ops, (process == of_process[begin]) & (device == of_device[begin]))
        gaps = _list_gaps(of_own, int(first[begin]), int(last[until - 1]))
        parts.append(_cut(gaps, first[own], last[own], begin))
    return _add_up(join_rows(*parts), of_process, of_device, step) if parts else IDLE_TIMES.to_frame()


class _Ops(Struct, frozen=True):
    """Operations of one device."""

    context: Int64s
    stream: Int64s
    start: Int64s
    end: Int64s
    launch: Int64s  # start of the call; `NEVER` where unknown


class _Gaps(Struct, frozen=True):
    """Gaps of one device, any order."""

    stream: Int64s  # `NEVER`: of the device as a whole
    cause: Int64s  # code of `IDLE_CAUSE`
    start: Int64s
    end: Int64s


class _Pieces(Struct, frozen=True):
    """Pieces of gaps, each in one window."""

    stream: Int64s
    cause: Int64s
    window: Int64s  # row of the windows of all devices
    is_first: Int64s  # 1: the first piece of its gap; else 0
    length: Int64s
    whole: Int64s  # length of the gap, of its first piece; else `NEVER`


def _add_up(pieces: _Pieces, process: Int64s, device: Int64s, step: Int64s) -> pl.DataFrame:
    """Add up the pieces of each device, stream, step and cause (`IDLE_TIMES`)."""
    window, stream, cause = pieces.window, pieces.stream, pieces.cause
    keys = (process[window], device[window], stream, step[window], cause)
    first, number = number_keys(pack(*keys))
    count, total = np.zeros((2, len(first)), dtype=np.int64)
    most = np.full(len(first), NEVER)
    np.add.at(count, number, pieces.is_first)
    np.add.at(total, number, pieces.length)
    np.maximum.at(most, number, pieces.whole)
    of_process, of_device, stream, of_step, cause = (key[first] for key in keys)
    order = sort_rows(of_process, of_device, stream, sort_last(of_step), cause)
    columns = {
        "process_key": of_process,
        "device_id": of_device,
        "step": of_step,
        "stream_id": stream,
        "count": count,
        "total_ns": total,
        "most_ns": most,
    }
    causes = pl.Series("cause", IDLE_CAUSE.categories, dtype=IDLE_CAUSE)[cause[order]]
    summed = pl.DataFrame([as_numbers(name, values[order]) for name, values in columns.items()])
    return conform(summed.hstack([causes]), IDLE_TIMES)


def _list_gaps(ops: _Ops, first: int, last: int) -> _Gaps:
    """List the gaps of one device and of its streams; its time is [first, last)."""
    if not len(ops.start):
        return _list_edges([(first, last)])
    by_start = np.argsort(ops.start, kind="stable")
    stream = _number_streams(ops)
    narrow = stream[by_start].astype(np.min_scalar_type(stream.max()))  # 16 bits are sorted by radix
    by_stream = by_start[np.argsort(narrow, kind="stable")]
    of_device = _list_between(ops, by_start, np.zeros_like(stream))
    return join_rows(
        _list_edges([(first, int(ops.start.min())), (int(ops.end.max()), last)]),
        replace(of_device, stream=np.full_like(of_device.stream, NEVER)),
        _list_between(ops, by_stream, stream),
    )


def _number_streams(ops: _Ops) -> Int64s:
    """Number the streams of a device; two contexts may use the same ids."""
    return find_distinct(pack(ops.context, ops.stream))[1]


def _list_edges(edges: list[tuple[int, int]]) -> _Gaps:
    """List the gaps before the first operation and after the last; one gap of all time without operations."""
    start, end = np.array([edge for edge in edges if edge[0] < edge[1]], dtype=np.int64).reshape(-1, 2).T
    return _Gaps(np.full_like(start, NEVER), np.full_like(start, _EDGES), start, end)


def _list_between(ops: _Ops, order: Int64s, group: Int64s) -> _Gaps:
    """List the gaps between operations of one group; `order` sorts operations by group and start."""
    group = group[order]
    start, end = ops.start[order], ops.end[order]
    reach = running_maximum(group, end)
    before = np.flatnonzero((group[1:] == group[:-1]) & (reach[:-1] < start[1:]))
    begin, until, next_op = reach[before], start[before + 1], order[before + 1]
    launch = ops.launch[next_op]
    cause = np.where(until - begin < KERNEL_WAIT_NS, _KERNEL_WAIT, _OTHER)
    cause[launch > begin] = _HOST_LATE
    cause[launch == NEVER] = _UNKNOWN
    return _Gaps(ops.stream[next_op], cause, begin, until)


def _cut(gaps: _Gaps, first: Int64s, last: Int64s, begin: int) -> _Pieces:
    """Split gaps at the borders of the windows of their device, whose rows begin at `begin`."""
    from_window = np.searchsorted(first, gaps.start, side="right") - 1
    until_window = np.searchsorted(first, gaps.end)
    gap = np.repeat(np.arange(len(gaps.start)), until_window - from_window)
    window = expand_windows(from_window, until_window)
    is_first = window == from_window[gap]
    length = np.minimum(gaps.end[gap], last[window]) - np.maximum(gaps.start[gap], first[window])
    whole = np.where(is_first, (gaps.end - gaps.start)[gap], NEVER)
    return _Pieces(
        gaps.stream[gap], gaps.cause[gap], window + begin, is_first.astype(np.int64), length, whole
    )
