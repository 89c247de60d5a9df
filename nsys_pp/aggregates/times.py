"""Times of a report by step: busy, idle, launches, the host, with their windows and unions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.columns import (
    EVER,
    NEVER,
    as_numbers,
    find_distinct,
    has_value,
    index_rows,
    is_among,
    join_rows,
    keep_rows,
    numbers,
    pack,
    pick,
    select_rows,
)
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.intervals import unite as unite_by_owner
from nsys_pp.arrays.launch_calls import find_launch_calls, mark_off_clocks
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.search import (
    expand_windows,
    find_last,
    find_rows,
    number_keys,
    running_maximum,
    sort_rows,
)
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import (
    ACTIVITY,
    GPU_TIMES,
    HOST_TIMES,
    IDLE_CAUSE,
    IDLE_TIMES,
    KERNEL_WAIT_NS,
    LATE_NS,
    LAUNCH_AGGREGATES,
    SLOW_CALL_NS,
)
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import KERNEL_KINDS, MOST_EARLY_NS, OP_KIND, WAITING_CALL

PROCESS = ("process_key",)
DEVICE = ("process_key", "device_id")
_STEP = ("process_key", "device_id", "step")


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
    return _cut(steps.select(*_STEP, "start_ns", "end_ns"))


def time_on_host(steps: pl.DataFrame) -> StepTimes:
    """List the disjoint steps of processes on the CPU, of `STEPS`; an unknown border is infinitely far.

    A step has the hull of its times on all devices. Without a time on the CPU, it has the time between the
    steps around it.
    """
    begin, end = pl.col("host_start_ns"), pl.col("host_end_ns")
    spans = (
        steps.group_by("process_key", "step")
        .agg(pl.col("start_ns").min(), begin.min(), end.max())
        .sort("process_key", "start_ns", "step")
    )
    previous = end.cum_max().forward_fill().over("process_key")
    following = begin.cum_min(reverse=True).backward_fill().over("process_key")
    return _cut(
        spans.select(
            "process_key",
            "step",
            start_ns=pl.coalesce(begin, previous, pl.lit(NEVER + 1, pl.Int64)),
            end_ns=pl.coalesce(end, following, pl.lit(EVER, pl.Int64)),
        )
    )


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
    return as_numbers("step", times.find([numbers(key) for key in owner], numbers(moments)))


def _cut(steps: pl.DataFrame) -> StepTimes:
    """End each step when the next one of its owner begins.

    Drop empty steps, and those without an owner or a time.

    Args:
        steps: Keys of the owner, step, start_ns, end_ns.
    """
    owner, start = steps.columns[:-3], pl.col("start_ns")
    cut = (
        steps.drop_nulls([*owner, "start_ns", "end_ns"])
        .filter(start < pl.col("end_ns"))
        .sort(*owner, "start_ns", "step")
        .with_columns(pl.min_horizontal("end_ns", start.shift(-1).over(owner)))
        .filter(start < pl.col("end_ns"))
    )
    *keys, step, first, last = (numbers(column) for column in cut)
    return StepTimes(tuple(keys), step, first, last)


class Union(Struct, frozen=True, kw_only=True):
    """Disjoint intervals `[start, end)`, ascending; none touches the next."""

    start: Int64s
    end: Int64s

    def __or__(self, other: Union) -> Union:
        """Unite two unions."""
        return unite(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def within(self, first: Int64s, last: Int64s) -> Int64s:
        """Return the covered length of each window `[first, last)`."""
        return sum_within(self.start, self.end, first, last)

    def overlap_within(self, other: Union, first: Int64s, last: Int64s) -> Int64s:
        """Return the length of the intersection within each window: |A| + |B| - |A or B|."""
        return self.within(first, last) + other.within(first, last) - (self | other).within(first, last)


def unite(start: Int64s, end: Int64s) -> Union:
    """Unite intervals that overlap or touch.

    Args:
        start: Any order.
        end: Ends of the same intervals; not before the start.

    Returns:
        Their union; empty intervals are dropped.

    >>> unite(np.array([7, 0, 2, 5]), np.array([9, 3, 5, 5]))
    Union(start=array([0, 7]), end=array([5, 9]))
    """
    united = unite_by_owner(np.zeros(len(start), dtype=np.int64), start, end)
    return Union(start=united.start, end=united.end)


def sum_within(start: Int64s, end: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """Add up the lengths of intervals, in any order.

    Within each window `[first, last)`; overlaps count twice.

    >>> sum_within(np.array([0, 2]), np.array([4, 9]), np.array([0, 3]), np.array([3, 5]))
    array([4, 3])
    """
    start, end = np.sort(start), np.sort(end)
    return (
        _sum_before(start, last)
        - _sum_before(end, last)
        - _sum_before(start, first)
        + _sum_before(end, first)
    )


def _sum_before(times: Int64s, until: Int64s) -> Int64s:
    """Add up `until - time` over the times before each `until`.

    Sums may overflow Int64; they wrap around, so differences within Int64 are still exact.
    """
    count = np.searchsorted(times, until)
    sums = np.append(np.int64(0), np.cumsum(times))
    return count * until - sums[count]


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
    """Cut the time of processes and devices at the borders of their steps.

    That of a process is from its first to its last event, that of each device the capture: from the first to
    the last operation, or step, of all devices.

    Args:
        steps: `STEPS`; if empty, each device and process has one window.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        ranges: `RANGES`.

    Returns:
        Windows: of a step on a device, `[start_ns, end_ns)`; on the CPU, its range or its jobs, or without
            these
        the time between the steps around it. If steps overlap, the earlier one ends when the next begins.
        The time of a process includes its steps beyond its events. No window is empty, unless it is the only
        one.
    """
    host, device = time_on_host(steps), time_on_device(steps)
    # the first and the last time of each process, in events and steps
    times = [
        *(
            frame.select("process_key", first="start_ns", last="end_ns")
            for frame in (gpu_ops, api_calls, os_calls, ranges, steps)
        ),
        steps.select("process_key", first="host_start_ns", last="host_end_ns"),
    ]
    spans = (
        pl.concat(times)
        .group_by("process_key")
        .agg(pl.col("first").min(), pl.col("last").max())
        .sort("process_key")
    )
    process, first, last = (
        numbers(spans["process_key"]),
        numbers(spans["first"], null=EVER),
        numbers(spans["last"]),
    )
    owners = [np.concatenate([numbers(frame[key]) for frame in (gpu_ops, steps)]) for key in DEVICE]
    distinct, _ = number_keys(pack(*owners))
    distinct = distinct[owners[0][distinct] > NEVER]
    owners = [key[distinct] for key in owners]
    capture = pl.concat([frame.select("start_ns", "end_ns") for frame in (gpu_ops, steps)])
    limits = (capture["start_ns"].min(), capture["end_ns"].max())
    of_devices = tile(device, owners, *(np.full(len(distinct), limit, dtype=np.int64) for limit in limits))
    return Windows(
        device=conform(_frame(DEVICE, *of_devices), DEVICE_WINDOWS),
        host=conform(_frame(PROCESS, *tile(host, [process], first, last)), HOST_WINDOWS),
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
        Keys of the owner, step (`NEVER` outside all steps), start and end of windows that tile these times,
        by owner and start.
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
    is_alone = ~np.isin(np.arange(count), row)
    left = np.flatnonzero((starts < ends) | (is_alone[rows] & (steps_of == NEVER)))
    left = left[sort_rows(*(key[rows[left]] for key in owner), starts[left])]
    return [key[rows[left]] for key in owner], steps_of[left], starts[left], ends[left]


def _frame(
    keys: Sequence[str], owner: Sequence[Int64s], step: Int64s, start: Int64s, end: Int64s
) -> pl.DataFrame:
    columns = zip((*keys, "step", "start_ns", "end_ns"), (*owner, step, start, end), strict=True)
    return pl.DataFrame([as_numbers(name, values) for name, values in columns])


_MEASURES = (
    *("span_ns", "overlap_ns", "any_overlap_ns", "busy_ns", "kernel_ns", "compute_ns"),
    *("communication_ns", "memcpy_ns", "memset_ns", "any_communication_ns"),
)


def measure_gpu(
    gpu_ops: pl.DataFrame, *, host_communication: pl.DataFrame, windows: pl.DataFrame
) -> pl.DataFrame:
    """Measure the time of each kind of work on each device.

    Args:
        gpu_ops: `GPU_OPS`.
        host_communication: process_key, start_ns, end_ns of communication on the CPU, as
            `nsys_pp.aggregates.times.find_communication` returns it.
        windows: `DEVICE_WINDOWS`.

    Returns:
        `GPU_TIMES`: one row per device and step, and one for the time outside all steps, by device and
        step, null last. Operations outside all windows do not count. Without windows, empty.
    """
    if windows.is_empty():
        return GPU_TIMES.to_frame()
    work = _number_works(gpu_ops)
    columns = ("process_key", "device_id", "start_ns", "end_ns")
    process, device, start, end = (numbers(gpu_ops[name]) for name in columns)
    host_process, host_start, host_end = (
        numbers(host_communication[name]) for name in ("process_key", *columns[2:])
    )
    keys = [numbers(windows[name]) for name in _STEP]
    first, last = (numbers(windows[name]) for name in columns[2:])
    measured = np.zeros((len(_MEASURES), len(windows)), dtype=np.int64)
    begins = number_keys(pack(*keys[:2]))[0]
    for begin, until in zip(begins, [*begins[1:], len(windows)], strict=True):
        own, is_own = slice(begin, until), (process == keys[0][begin]) & (device == keys[1][begin])
        compute, communication, memcpy, memset = (
            unite(start[of], end[of]) for of in (is_own & (work == code) for code in range(4))
        )
        of_host = host_process == keys[0][begin]
        any_communication = communication | unite(host_start[of_host], host_end[of_host])
        kernel, since, until_ns = compute | communication, first[own], last[own]
        unions = (kernel | memcpy | memset, kernel, compute, communication, memcpy, memset, any_communication)
        measured[:, own] = [
            until_ns - since,
            compute.overlap_within(communication, since, until_ns),
            compute.overlap_within(any_communication, since, until_ns),
            *(union.within(since, until_ns) for union in unions),
        ]
    return (
        windows.select(_STEP)
        .hstack(pl.DataFrame([pl.Series(name, of) for name, of in zip(_MEASURES, measured, strict=True)]))
        .group_by(_STEP)
        .agg(pl.col(_MEASURES).sum())
        .sort(_STEP, nulls_last=[False, False, True])
        .pipe(conform, GPU_TIMES)
    )


def _number_works(gpu_ops: pl.DataFrame) -> Int64s:
    """Number the work of each operation: compute 0, communication 1, copies 2, sets 3; -1 for other kinds."""
    codes = {
        **dict.fromkeys(OP_KIND.categories, -1),
        **dict.fromkeys(KERNEL_KINDS, 0),
        "memcpy": 2,
        "memset": 3,
    }
    work: Int64s = np.array([*codes.values()])[numbers(gpu_ops["kind"])]
    work[gpu_ops["is_communication"].to_numpy() & (work == 0)] = 1
    return work


_EDGES, _HOST_LATE, _KERNEL_WAIT, _OTHER, _UNKNOWN = range(len(IDLE_CAUSE.categories))


def find_idle(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame, windows: pl.DataFrame
) -> pl.DataFrame:
    """Find the gaps of each device, and the gaps between the operations of each stream.

    Causes are those of HolisticTraceAnalysis, in this order: "unknown" if the call of the operation that ends
    the gap is unknown, or the clock of the device is off (`mark_off_clocks`);
    "host_late" if that call began after the gap; "kernel_wait" if the gap is shorter than `KERNEL_WAIT_NS`;
    else "other". If several operations end a gap, the first in `GPU_OPS` counts.

    Args:
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
        windows: `DEVICE_WINDOWS`; they cover all operations.

    Returns:
        `IDLE_TIMES`, by device, stream (the device first), step (null last) and cause. A gap that crosses a
        border between windows adds its pieces to both, and to `count` where it begins: rows may have count 0.
        For each device and step, causes of the device add up to `span_ns` - `busy_ns` of `GPU_TIMES`.
    """
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    columns = ("context_id", "stream_id", "start_ns", "end_ns")
    context, stream, start, end = (numbers(gpu_ops[name]) for name in columns)
    ops = _Ops(context, stream, start, end, pick(numbers(api_calls["start_ns"]), call, NEVER))
    process, device = (numbers(gpu_ops[name]) for name in DEVICE)
    parts = []
    for (of_process, of_device), own in windows.partition_by(DEVICE, as_dict=True).items():
        of_own = select_rows(ops, (process == of_process) & (device == of_device))
        early_ns = (of_own.launch - of_own.start)[of_own.launch != NEVER]
        if mark_off_clocks(np.zeros_like(early_ns), early_ns, 1)[0]:  # launches are of another clock
            of_own = replace(of_own, launch=np.full_like(of_own.launch, NEVER))
        parts.append(_cut_gaps(_list_gaps(of_own, own["start_ns"][0], own["end_ns"][-1]), own))
    if not parts:
        return IDLE_TIMES.to_frame()
    keys = ["process_key", "device_id", "stream_id", "step", "cause"]
    return (
        pl.concat(parts)
        .group_by(keys)
        .agg(pl.col("count", "total_ns").sum(), pl.col("most_ns").max())
        .sort(keys, nulls_last=[False, False, False, True, False])
        .with_columns(
            pl.col("cause").replace_strict(dict(enumerate(IDLE_CAUSE.categories)), return_dtype=IDLE_CAUSE)
        )
        .pipe(conform, IDLE_TIMES)
    )


class _Ops(Struct, frozen=True):
    context: Int64s
    stream: Int64s
    start: Int64s
    end: Int64s
    launch: Int64s  # start of the call; `NEVER` where unknown


class _Gaps(Struct, frozen=True):
    stream: Int64s  # `NEVER`: of the device as a whole
    cause: Int64s  # code of `IDLE_CAUSE`
    start: Int64s
    end: Int64s


def _list_gaps(ops: _Ops, first: int, last: int) -> _Gaps:
    """List the gaps of one device and of its streams; its time is [first, last)."""
    if not len(ops.start):
        return _list_edges([(first, last)])
    by_start = np.argsort(ops.start, kind="stable")
    stream = find_distinct(pack(ops.context, ops.stream))[1]  # two contexts may use the same ids
    narrow = stream[by_start].astype(np.min_scalar_type(stream.max()))  # 16 bits are sorted by radix
    by_stream = by_start[np.argsort(narrow, kind="stable")]
    of_device = _list_between(ops, by_start, np.zeros_like(stream))
    return join_rows(
        _list_edges([(first, int(ops.start.min())), (int(ops.end.max()), last)]),
        replace(of_device, stream=np.full_like(of_device.stream, NEVER)),
        _list_between(ops, by_stream, stream),
    )


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


def _cut_gaps(gaps: _Gaps, windows: pl.DataFrame) -> pl.DataFrame:
    """Split gaps at the borders of the windows of their device, which tile its time.

    Returns:
        process_key, device_id, step, stream_id, cause (its code), count (1: the first piece of a gap; else
        0), total_ns, most_ns (length of the gap, of its first piece; else null).
    """
    first, last = (numbers(windows[name]) for name in ("start_ns", "end_ns"))
    from_window = np.searchsorted(first, gaps.start, side="right") - 1
    until_window = np.searchsorted(first, gaps.end)
    gap = np.repeat(np.arange(len(gaps.start)), until_window - from_window)
    window = expand_windows(from_window, until_window)
    is_first = window == from_window[gap]
    columns = {
        "stream_id": gaps.stream[gap],
        "cause": gaps.cause[gap],
        "count": is_first.astype(np.int64),
        "total_ns": np.minimum(gaps.end[gap], last[window]) - np.maximum(gaps.start[gap], first[window]),
        "most_ns": np.where(is_first, (gaps.end - gaps.start)[gap], NEVER),
    }
    return index_rows(windows.select(_STEP), window).hstack(
        [as_numbers(name, values) for name, values in columns.items()]
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
        `LAUNCH_AGGREGATES` by device and step, null last. Launches of operations that start more than
        `MOST_EARLY_NS` before their call have no delay. A launch is in the step in which its first kernel
        starts; the queue is cut at the borders of steps, so that a step may have a queue and a `count` of 0.
    """
    launched = _list_launches(gpu_ops, api_calls, launches)
    length, delay = pl.col("end_ns") - pl.col("start_ns"), pl.col("start_ns") - pl.col("call_ns")
    call_length = pl.col("call_end_ns") - pl.col("call_ns")
    frame = launched.select(
        "process_key",
        pl.col("device_id").cast(pl.Int64),
        step_on_device(launched, steps),
        delay_ns=pl.when(delay >= -MOST_EARLY_NS).then(delay),
        short_count=(length < call_length).cast(pl.Int64),
        slow_call_count=(call_length > SLOW_CALL_NS).cast(pl.Int64),
        late_count=(delay > LATE_NS).cast(pl.Int64),
    )
    delays = build_distributions(frame, _STEP, "delay_ns")
    marked = frame.group_by(_STEP).agg(pl.col("short_count", "slow_call_count", "late_count").sum())
    queues = _measure_queues(launched, time_on_device(steps))
    joined = marked
    for other in (queues, delays):
        joined = joined.join(other, on=_STEP, how="full", coalesce=True, nulls_equal=True)
    return (
        joined.with_columns(
            pl.col(name).fill_null(0)
            for name in (*marked.columns[3:], *queues.columns[3:], "count", "total", "squares")
        )
        .with_columns(pl.col("values", "value_counts").fill_null([]))
        .filter((pl.col("count") > 0) | (pl.col("queue_most") > 0))
        .sort(_STEP, nulls_last=[False, False, True])
        .pipe(conform, LAUNCH_AGGREGATES)
    )


def _list_launches(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """List the launches of each call on each device: its keys, call, start_ns, end_ns, call_ns, call_end_ns.

    From the start of the first operation to the end of the last one.
    """
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    rows = np.flatnonzero(is_among(gpu_ops["kind"], KERNEL_KINDS) & (call >= 0))
    calls = index_rows(api_calls[["start_ns", "end_ns"]], call[rows])
    return (
        index_rows(gpu_ops[[*DEVICE, "start_ns", "end_ns"]], rows)
        .with_columns(call=pl.Series(call[rows]), call_ns=calls["start_ns"], call_end_ns=calls["end_ns"])
        .group_by(*DEVICE, "call", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("call_ns", "call_end_ns").first())
    )


def _measure_queues(launched: pl.DataFrame, steps: StepTimes) -> pl.DataFrame:
    """Measure the queue of each device in its steps: process_key, device_id, step, queued_ns, queue_most."""
    columns = (*DEVICE, "call_ns", "start_ns", "end_ns")
    process_key, device_id, call, ran, end = (numbers(launched[name]) for name in columns)
    begin = np.minimum(call, ran)  # with clock errors, a kernel may start before its call
    first, number = number_keys(pack(process_key, device_id))
    owners = [process_key[first], device_id[first]]
    since, until = begin[first], end[first]
    np.minimum.at(since, number, begin)
    # an operation without length at the last moment lies in the last window, too
    np.maximum.at(until, number, np.maximum(end, ran + 1))
    keys, step, start, stop = tile(steps, owners, since, until)
    queued, most = np.zeros((2, len(step)), dtype=np.int64)
    for owner, (process, device) in enumerate(zip(*owners, strict=True)):
        own = np.flatnonzero((keys[0] == process) & (keys[1] == device))
        begins, ends = np.sort(begin[number == owner]), np.sort(end[number == owner])
        queued[own] = sum_within(begins, ends, start[own], stop[own])
        most[own] = _find_longest(begins, ends, start[own], stop[own])
    measured = zip((*_STEP, "queued_ns", "queue_most"), (*keys, step, queued, most), strict=True)
    return (
        pl.DataFrame([as_numbers(name, values) for name, values in measured])
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


_SPAN = ["process_key", "start_ns", "end_ns"]


def measure_host(
    *,
    windows: pl.DataFrame,
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
    thread_runs: pl.DataFrame,
) -> pl.DataFrame:
    """Measure the time of each activity in each process.

    Args:
        windows: `HOST_WINDOWS`.
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS` of these.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`.
        thread_runs: `THREAD_RUNS`.

    Returns:
        `HOST_TIMES`, by process, step (null last) and activity. An activity has a row if any of it
        lies in the step; "span" always has one. An interval that crosses a border adds its pieces to both
        steps, and to `count` where it begins. Intervals outside all windows do not count. Without windows,
        empty.
    """
    has_name = has_value(operators["name"])
    range_id, operator_id = numbers(ranges["range_id"]), numbers(operators["range_id"])
    of_jobs = _list_phases(jobs)
    activities = {
        "range": ranges,
        "operator": keep_rows(ranges[_SPAN], np.isin(range_id, operator_id[has_name])),
        **{
            name: of_jobs.filter(pl.col("kind") == name)
            for name in ("forward", "backward", "optimizer", "data")
        },
        "communication": find_communication(ranges, operators),
        "cuda": api_calls,
        "sync": keep_rows(api_calls[_SPAN], is_named(api_calls["name"], WAITING_CALL)),
        "os": os_calls,
        "cpu": thread_runs,
    }
    keys = ["process_key", "step"]
    span = pl.col("end_ns") - pl.col("start_ns")
    rows = [
        windows.select(*keys, activity=pl.lit("span", ACTIVITY), count=pl.lit(1, pl.Int64), union_ns=span)
    ]
    for owner, own in windows.partition_by("process_key", as_dict=True).items():
        first, last = numbers(own["start_ns"]), numbers(own["end_ns"])
        for name, intervals in activities.items():
            of_owner = intervals.filter(pl.col("process_key") == owner[0])
            start, end = numbers(of_owner["start_ns"]), numbers(of_owner["end_ns"])
            in_order = np.sort(start)
            count = np.searchsorted(in_order, last) - np.searchsorted(in_order, first)
            time = (
                sum_within(start, end, first, last)
                if name == "cpu"
                else unite(start, end).within(first, last)
            )
            rows.append(
                own.select(
                    *keys,
                    activity=pl.lit(name, ACTIVITY),
                    count=pl.Series(count),
                    union_ns=pl.Series(time),
                )
            )
    return (
        pl.concat(rows)
        .filter((pl.col("count") > 0) | (pl.col("union_ns") > 0) | (pl.col("activity") == "span"))
        .group_by(*keys, "activity")
        .agg(pl.col("count", "union_ns").sum())
        .sort(*keys, "activity", nulls_last=[False, True, False])
        .pipe(conform, HOST_TIMES)
    )


def find_communication(ranges: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """List the intervals of communication on the CPU.

    Args:
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS` of these.

    Returns:
        process_key, start_ns, end_ns.
    """
    named = numbers(operators["range_id"])[operators["is_communication"].to_numpy()]
    return keep_rows(ranges, np.isin(numbers(ranges["range_id"]), named))[_SPAN]


def _list_phases(jobs: pl.DataFrame) -> pl.DataFrame:
    """List the jobs on the CPU that lie in no other one of their kind and thread: process, times, kind."""
    end = pl.col("end_ns")
    reach = end.cum_max().shift().over("kind", "thread_key")
    return (
        jobs.unique("range_id", keep="first", maintain_order=True)
        .select("process_key", "kind", "thread_key", start_ns="host_start_ns", end_ns="host_end_ns")
        .sort("kind", "thread_key", "start_ns", -end)
        .filter(reach.is_null() | (end > reach))
    )
