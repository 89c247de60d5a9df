"""Delays from launching calls to kernels, and the length of the launch queue.

    call     [ launch )
    kernel                        [ kernel   )
    delay    |--------------------|
    queued   |-------------------------------|

All operations of one call on a device count as one launch, from the start of the first kernel to the end of the last: in a
graph with traced nodes, the thousandth kernel waits for the other kernels, not for its launch.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.groups import split_rows
from nsys_pp.aggregates.unions import sum_within
from nsys_pp.aggregates.windows import step_on_device, tile_devices
from nsys_pp.arrays.columns import gather
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.scratch_frames import build_blocks, list_blocks
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import DISTRIBUTION, LATE_NS, LAUNCH_AGGREGATES, SLOW_CALL_NS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, MOST_EARLY_NS

_DEVICE = ["process_key", "device_id"]
_STEP = [*_DEVICE, "step"]
_NO_DELAYS = {"values": [], "value_counts": [], "count": 0, "total": 0, "squares": 0.0}


def sum_launches(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame, steps: pl.DataFrame
) -> pl.DataFrame:
    """Measure the delays of launches, and the queue of launched operations that have not ended.

    The measures are HolisticTraceAnalysis', except that its queue drops a kernel when it starts.

    Args:
        gpu_ops: `GPU_OPS`; kernels and graphs with a known call count.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        steps: `STEPS`.

    Returns:
        `LAUNCH_AGGREGATES` by device and step, null last. Launches of operations that start more than `MOST_EARLY_NS`
        before their call have no delay. A launch is in the step in which its first kernel starts; the queue
        is cut at the borders of steps, so that a step may have a queue and a `count` of 0.
    """
    listed = _list_launches(gpu_ops, api_calls, launches)
    delay = pl.col("start_ns") - pl.col("call_ns")

    def add_steps(first: int, stop: int) -> pl.DataFrame:
        rows = listed[first:stop]
        return rows.with_columns(
            step_on_device(rows, steps), delay_ns=pl.when(delay >= -MOST_EARLY_NS).then(delay)
        )

    launched = build_blocks(len(listed), add_steps)
    counts = pl.concat([_count(launched[rows]) for rows in list_blocks(len(launched))])
    counts = counts.group_by(_STEP).agg(pl.all().sum())
    return (
        _measure_queues(launched, steps)
        .join(counts, on=_STEP, how="left", nulls_equal=True)
        .join(build_distributions(launched, _STEP, "delay_ns"), on=_STEP, how="left", nulls_equal=True)
        .filter((pl.col("count") > 0) | (pl.col("queue_most") > 0))
        .with_columns(pl.col(f"{name}_count").fill_null(0) for name in ("short", "slow_call", "late"))
        .with_columns(
            pl.col(name).fill_null(pl.lit(empty, DISTRIBUTION[name])) for name, empty in _NO_DELAYS.items()
        )
        .sort(_STEP, nulls_last=True)
        .pipe(conform, LAUNCH_AGGREGATES)
    )


def _count(launched: pl.DataFrame) -> pl.DataFrame:
    """Count the launches of kinds that users look for, by step."""
    length, call = pl.col("end_ns") - pl.col("start_ns"), pl.col("call_end_ns") - pl.col("call_ns")
    return launched.group_by(_STEP).agg(
        short_count=(length < call).sum().cast(pl.Int64),
        slow_call_count=(call > SLOW_CALL_NS).sum().cast(pl.Int64),
        late_count=(pl.col("delay_ns") > LATE_NS).sum().cast(pl.Int64),
    )


def _list_launches(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """List the launches of each call on each device: process_key, device_id, start_ns, end_ns, call_ns, call_end_ns."""
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)

    def list_ops(first: int, stop: int) -> pl.DataFrame:
        rows = gpu_ops[first:stop].select(*_DEVICE, "start_ns", "end_ns", "kind", call=call[first:stop])
        return rows.filter(pl.col("kind").is_in(KERNEL_KINDS), pl.col("call") >= 0)

    ops = build_blocks(len(gpu_ops), list_ops)
    if (np.bincount(ops["call"].to_numpy()) > 1).any():
        hull = [pl.col("start_ns").min(), pl.col("end_ns").max()]
        ops = ops.group_by(*_DEVICE, "call", maintain_order=True).agg(hull)
    calls = {"call_ns": "start_ns", "call_end_ns": "end_ns"}
    rows = ops["call"].to_numpy()
    columns = [gather(api_calls[name], rows).alias(ours) for ours, name in calls.items()]
    return ops[[*_DEVICE, "start_ns", "end_ns"]].hstack(columns)


def _measure_queues(launched: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Measure the queue of each device in each step: process_key, device_id, step, queued_ns, queue_most."""
    begin = pl.min_horizontal("call_ns", "start_ns")  # with clock errors, a kernel may start before its call
    queued = build_blocks(
        len(launched),
        lambda first, stop: launched[first:stop].select(*_DEVICE, "end_ns", start_ns=begin, op_ns="start_ns"),
    )
    # an operation without length at the last moment lies in the last window, too
    last = pl.max_horizontal("end_ns", pl.col("op_ns") + 1).max()
    span = {"first_ns": pl.col("start_ns").min(), "last_ns": last}
    spans = pl.concat([queued[rows].group_by(_DEVICE).agg(**span) for rows in list_blocks(len(queued))])
    spans = spans.group_by(_DEVICE).agg(pl.col("first_ns").min(), pl.col("last_ns").max())
    windows = tile_devices(steps, spans)
    starts, ends = (queued[name].to_numpy() for name in ("start_ns", "end_ns"))
    of_device = split_rows(queued, _DEVICE)
    parts = []
    for device, own in windows.partition_by(_DEVICE, as_dict=True).items():
        first, last_ns = (own[name].to_numpy() for name in ("start_ns", "end_ns"))
        start, end = starts[of_device[device]], ends[of_device[device]]
        most = _find_longest(np.sort(start), np.sort(end), first, last_ns)
        parts.append(
            own.select(_STEP).with_columns(
                queued_ns=pl.Series(sum_within(start, end, first, last_ns)), queue_most=pl.Series(most)
            )
        )
    empty = windows.select(_STEP).with_columns(queued_ns=pl.lit(0), queue_most=pl.lit(0)).clear()
    return (
        pl.concat([empty.cast({"queued_ns": pl.Int64, "queue_most": pl.Int64}), *parts])
        .group_by(_STEP)
        .agg(pl.col("queued_ns").sum(), pl.col("queue_most").max())
    )


def _find_longest(start: Int64s, end: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Return the largest number of simultaneous intervals within each window.

    Args:
        start: Starts of the intervals, ascending.
        end: Ends of the intervals, ascending.
        first: Starts of the windows; windows tile time.
        last: Ends of the windows.
    """
    at_start = np.arange(1, len(start) + 1) - np.searchsorted(end, start, side="right")
    at_first = np.searchsorted(start, first, side="right") - np.searchsorted(end, first, side="right")
    bounds = np.stack([np.searchsorted(start, first), np.searchsorted(start, last)], axis=1).ravel()
    # one more value, so that windows may end at the last start
    most = np.maximum.reduceat(np.append(at_start, 0), bounds)[::2]
    return np.where(bounds[::2] < bounds[1::2], np.maximum(most, at_first), at_first)
