"""Delays from launching calls to kernels, and the length of the launch queue.

    call     [ launch )
    kernel                        [ kernel   )
    delay    |--------------------|
    queued   |-------------------------------|

All operations of one call on a device count as one launch, from the start of the first kernel to the end of the last: in a
graph with traced nodes, the thousandth kernel waits for the other kernels, not for its launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.step_times import DEVICE, StepTimes, sort_last, time_on_device
from nsys_pp.aggregates.unions import sum_within
from nsys_pp.aggregates.windows import tile
from nsys_pp.arrays.columns import NEVER, as_numbers, index_rows, is_among, numbers, pack
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_rows, number_keys
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import DISTRIBUTION, LATE_NS, LAUNCH_AGGREGATES, SLOW_CALL_NS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS, MOST_EARLY_NS

_STEP = [*DEVICE, "step"]
_NOTHING: Mapping[str, Any] = {
    "count": 0,
    "total": 0,
    "least": None,
    "most": None,
    "squares": 0.0,
    "values": [],
    "value_counts": [],
}
_NO_DELAYS = pl.DataFrame(
    [pl.Series(name, [_NOTHING[name]], dtype=dtype) for name, dtype in DISTRIBUTION.items()]
)


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
    launched, times = _list_launches(gpu_ops, api_calls, launches), time_on_device(steps)
    queues = _measure_queues(launched, times)
    step = times.find([launched.process, launched.device], launched.start)
    keys = [
        np.append(queues.process, launched.process),
        np.append(queues.device, launched.device),
        np.append(queues.step, step),
    ]
    first, number = number_keys(pack(*keys))
    count = len(first)
    queued, most = np.zeros((2, count), dtype=np.int64)
    np.add.at(queued, number[: len(queues.step)], queues.queued)
    np.maximum.at(most, number[: len(queues.step)], queues.most)
    number = number[len(queues.step) :]
    call_ns, delay = launched.call_end - launched.call, launched.start - launched.call
    delay[delay < -MOST_EARLY_NS] = NEVER
    marked = {
        "short_count": launched.end - launched.start < call_ns,
        "slow_call_count": call_ns > SLOW_CALL_NS,
        "late_count": delay > LATE_NS,
    }
    columns = [as_numbers(name, key[first]) for name, key in zip(_STEP, keys, strict=True)]
    columns += [pl.Series(name, np.bincount(number[mask], minlength=count)) for name, mask in marked.items()]
    columns += [pl.Series("queued_ns", queued), pl.Series("queue_most", most)]
    delays = _describe_delays(number, delay, count)
    kept = np.flatnonzero((numbers(delays["count"]) > 0) | (most > 0))
    process, device, of_step = (key[first][kept] for key in keys)
    order = sort_rows(process, device, sort_last(of_step))
    return conform(index_rows(pl.DataFrame(columns).hstack(delays), kept[order]), LAUNCH_AGGREGATES)


class _Launches(Struct, frozen=True):
    """Launches of calls on devices."""

    process: Int64s
    device: Int64s
    start: Int64s  # of the first operation
    end: Int64s  # of the last operation
    call: Int64s  # start of the call
    call_end: Int64s


class _Queues(Struct, frozen=True):
    """Queues of devices in windows of their steps."""

    process: Int64s
    device: Int64s
    step: Int64s  # `NEVER` outside all steps
    queued: Int64s
    most: Int64s


def _describe_delays(row: npt.NDArray[np.uint32], delay: Int64s, count: int) -> pl.DataFrame:
    """Build the distribution of delays of each row (`DISTRIBUTION`), also of rows without delays."""
    delays = build_distributions(
        pl.DataFrame([pl.Series("row", row.astype(np.int64)), as_numbers("delay_ns", delay)]),
        ["row"],
        "delay_ns",
    )
    at = find_rows(numbers(delays["row"]), np.arange(count))
    return index_rows(pl.concat([delays.drop("row"), _NO_DELAYS]), np.where(at < 0, len(delays), at))


def _list_launches(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> _Launches:
    """List the launches of each call on each device."""
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    rows = np.flatnonzero(is_among(gpu_ops["kind"], KERNEL_KINDS) & (call >= 0))
    call = call[rows]
    process, device, start, end = (numbers(gpu_ops[name])[rows] for name in (*DEVICE, "start_ns", "end_ns"))
    if (np.bincount(call) > 1).any():
        first, number = number_keys(pack(process, device, call))
        of_all = start, end
        start, end = of_all[0][first], of_all[1][first]
        np.minimum.at(start, number, of_all[0])
        np.maximum.at(end, number, of_all[1])
        process, device, call = process[first], device[first], call[first]
    calls = (numbers(api_calls[name])[call] for name in ("start_ns", "end_ns"))
    return _Launches(process, device, start, end, *calls)


def _measure_queues(launched: _Launches, steps: StepTimes) -> _Queues:
    """Measure the queue of each device in each window of its steps."""
    # with clock errors, a kernel may start before its call
    begin, end = np.minimum(launched.call, launched.start), launched.end
    first, number = number_keys(pack(launched.process, launched.device))
    owners = [launched.process[first], launched.device[first]]
    since, until = begin[first], end[first]
    np.minimum.at(since, number, begin)
    # an operation without length at the last moment lies in the last window, too
    np.maximum.at(until, number, np.maximum(end, launched.start + 1))
    keys, step, start, stop = tile(steps, owners, since, until)
    queued, most = np.zeros((2, len(step)), dtype=np.int64)
    for owner, (process, device) in enumerate(zip(*owners, strict=True)):
        own = np.flatnonzero((keys[0] == process) & (keys[1] == device))
        begins, ends = np.sort(begin[number == owner]), np.sort(end[number == owner])
        queued[own] = sum_within(begins, ends, start[own], stop[own])
        most[own] = _find_longest(begins, ends, start[own], stop[own])
    return _Queues(keys[0], keys[1], step, queued, most)


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
