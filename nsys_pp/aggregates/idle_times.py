"""Idle time of devices and streams, by cause.

    calls     [ launch B )                         [ launch C )
    stream  [ A  )          [ B        )                           [ C )
                 ^ other: B was launched before    ^ host_late: C was launched after the gap had begun

The cause of a gap follows from the operation that ends it: its call came too late, or it waited for something else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys_pp.aggregates.groups import split_rows
from nsys_pp.arrays.columns import find_distinct, gather_rows, whole_numbers
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.scratch_frames import list_blocks
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import IDLE_CAUSE, IDLE_TIMES, KERNEL_WAIT_NS
from nsys_pp.frames.conform import build_schema, conform

_DEVICE = ["process_key", "device_id"]
_STREAM = [*_DEVICE, "context_id", "stream_id"]
_UNKNOWN_NS = np.int64(-(1 << 62))  # start of an unknown call
_GAPS = build_schema(
    {  # gaps of one device, any order
        "stream_id": pl.Int64,  # null: of the device as a whole
        "cause": IDLE_CAUSE,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="_GAPS",
)


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
    launch = np.append(api_calls["start_ns"].to_numpy(), _UNKNOWN_NS)[call]  # -1 is the last one
    ops = gpu_ops[[*_STREAM, "start_ns", "end_ns"]].hstack([pl.Series("launch_ns", launch)])
    of_device = split_rows(ops, _DEVICE)
    parts = [IDLE_TIMES.to_frame()]
    for device, own in windows.partition_by(_DEVICE, as_dict=True).items():
        gaps = (
            _list_gaps(_select(ops, of_device[device]), own)
            if device in of_device
            else [_list_edges(own, None)]
        )
        parts.append(
            pl.concat([_sum_gaps(some, own) for some in gaps])
            .group_by("stream_id", "step", "cause")
            .agg(pl.col("count", "total_ns").sum(), pl.col("most_ns").max())
            .with_columns(pl.lit(device[0]).alias(_DEVICE[0]), pl.lit(device[1]).alias(_DEVICE[1]))
            .pipe(conform, IDLE_TIMES)
        )
    order = [*_DEVICE, "stream_id", "step", "cause"]
    return pl.concat(parts).sort(order, nulls_last=[False, False, False, True, False])


def _select(ops: pl.DataFrame, rows: Int64s | slice) -> pl.DataFrame:
    return ops[rows] if isinstance(rows, slice) else gather_rows(ops, ops.columns, rows)


def _sum_gaps(gaps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Sum gaps of one device (`_GAPS`) by stream, step and cause."""
    return (
        _cut(gaps, windows)
        .group_by("stream_id", "step", "cause")
        .agg(pl.col("count").sum(), total_ns=pl.col("length_ns").sum(), most_ns=pl.col("whole_ns").max())
    )


def _list_gaps(ops: pl.DataFrame, windows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the gaps of one device and of its streams, block by block: `_GAPS`."""
    by_start = np.argsort(ops["start_ns"].to_numpy(), kind="stable")
    stream = _number_streams(ops)
    narrow = stream[by_start].astype(np.min_scalar_type(stream.max()))  # 16 bits are sorted by radix
    by_stream = by_start[np.argsort(narrow, kind="stable")]
    yield _list_edges(windows, ops)
    for gaps in _list_between(ops, by_start, np.zeros_like(stream)):
        yield gaps.with_columns(stream_id=None).cast(_GAPS)
    yield from _list_between(ops, by_stream, stream)


def _number_streams(ops: pl.DataFrame) -> Int64s:
    """Number the streams of a device; ids of streams are 32 bits wide, and two contexts may use the same ones."""
    context, stream = (whole_numbers(ops[name]) for name in ("context_id", "stream_id"))
    key = (context << 32) + stream
    return find_distinct(key)[1]


def _list_edges(windows: pl.DataFrame, ops: pl.DataFrame | None) -> pl.DataFrame:
    """List the gaps before the first operation and after the last; one gap of all time without operations."""
    first, last = windows["start_ns"][0], windows["end_ns"][-1]
    edges = [(first, last)] if ops is None else [(first, ops["start_ns"].min()), (ops["end_ns"].max(), last)]
    gaps = pl.DataFrame(edges, {"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    return (
        gaps.filter(pl.col("start_ns") < pl.col("end_ns"))
        .with_columns(stream_id=None, cause=pl.lit("edges"))
        .pipe(conform, _GAPS)
    )


def _list_between(ops: pl.DataFrame, order: Int64s, group: Int64s) -> Iterator[pl.DataFrame]:
    """Yield the gaps between operations of one group, block by block; `order` sorts operations by group and start."""
    group = group[order]
    start, end = (ops[name].to_numpy()[order] for name in ("start_ns", "end_ns"))
    reach = running_maximum(group, end)
    before = np.flatnonzero((group[1:] == group[:-1]) & (reach[:-1] < start[1:]))
    begin, end_of_gap, next_op = reach[before], start[before + 1], order[before + 1]
    cause = (
        pl.when(pl.col("launch_ns") == _UNKNOWN_NS)
        .then(pl.lit("unknown", IDLE_CAUSE))
        .when(pl.col("launch_ns") > pl.col("start_ns"))
        .then(pl.lit("host_late", IDLE_CAUSE))
        .when(pl.col("end_ns") - pl.col("start_ns") < KERNEL_WAIT_NS)
        .then(pl.lit("kernel_wait", IDLE_CAUSE))
        .otherwise(pl.lit("other", IDLE_CAUSE))
    )
    for rows in list_blocks(len(begin)):
        gaps = ops[["stream_id", "launch_ns"]][next_op[rows]]
        yield (
            gaps.with_columns(start_ns=pl.Series(begin[rows]), end_ns=pl.Series(end_of_gap[rows]))
            .with_columns(cause=cause)
            .pipe(conform, _GAPS)
        )


def _cut(gaps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Split gaps at the borders of windows: stream_id, cause, step, count (1 for the first piece), length_ns, whole_ns."""
    first, last = (windows[name].to_numpy() for name in ("start_ns", "end_ns"))
    begin, end = (gaps[name].to_numpy() for name in ("start_ns", "end_ns"))
    from_window = np.searchsorted(first, begin, side="right") - 1
    until_window = np.searchsorted(first, end)
    gap = np.repeat(np.arange(len(gaps)), until_window - from_window)
    window = expand_windows(from_window, until_window)
    length = np.minimum(end[gap], last[window]) - np.maximum(begin[gap], first[window])
    return gaps.select(pl.col("stream_id", "cause").gather(gap)).with_columns(
        windows["step"].gather(window),
        count=pl.Series(window == from_window[gap]),
        length_ns=pl.Series(length),
        whole_ns=pl.Series((end - begin)[gap]).set(pl.Series(window != from_window[gap]), None),
    )
