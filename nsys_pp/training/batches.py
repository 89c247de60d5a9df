"""Batches of inference: prefill, decode or mixed, their times, and what the host did between.

Kinds are those of names, or of launches. Times are those of the operations that each batch launched: the
host may be far ahead of the GPU.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    has_value,
    is_among,
    list_distinct,
    numbers,
    pack,
)
from nsys_pp.arrays.intervals import find_innermost, intersect, split_at, unite
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.search import find_last, running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import GRAPH_LAUNCH
from nsys_pp.frames.training import BATCH_COUNTS, BATCH_KIND, BATCHES, HOST_ACTIVITIES, HOST_ACTIVITY_COLUMNS
from nsys_pp.training.launched import LaunchedOps, number_devices
from nsys_pp.training.names import NAMED_STEPS, load_activities


def build_batch_times(spans: pl.DataFrame, ops: LaunchedOps) -> pl.DataFrame:
    """Measure the operations of each batch, and the gap to the next batch of its device.

    A batch ends with its last operation on main streams, or with its last kernel on another stream that the
    same thread
    launched: engines sample on streams of their own.

    Args:
        spans: process_key, device_id, host_start_ns, host_end_ns of each batch; by device and start.
        ops: Operations of the report.

    Returns:
        The measured columns of `BATCHES`, row by row, and thread_key: the thread that launched the next
        batch.
    """
    device = number_devices(spans, ops.devices)
    begin, until = numbers(spans["host_start_ns"]), numbers(spans["host_end_ns"])
    row = find_last(ops.device, ops.issue, device, begin)  # the batch in whose span each was launched
    row[ops.issue > np.append(until, -NEVER)[row]] = -1
    count = len(spans)

    counted = ops.list_by_start((row >= 0) & ~ops.is_aside)
    batch, first = np.unique(row[counted], return_index=True)
    start, end, thread = (np.full(count, NEVER) for _ in range(3))
    start[batch] = ops.start[counted[first]]
    thread[batch] = ops.thread[counted[first]]
    is_own = ops.is_aside & (row >= 0) & ops.is_kernel
    is_own &= (ops.thread == np.append(thread, NEVER)[row]) & (ops.thread != NEVER)
    counted = np.union1d(counted, np.flatnonzero(is_own))
    np.maximum.at(end, row[counted], ops.end[counted])

    own = np.flatnonzero(start != NEVER)
    covered = intersect(device[own], start[own], end[own], unite(ops.device, ops.start, ops.end))
    busy, gap, following = np.full(count, NEVER), np.full(count, NEVER), np.full(count, NEVER)
    busy[own] = 0
    np.add.at(busy, own[covered.row], covered.end - covered.start)
    before, after = own[:-1], own[1:]
    is_next = device[before] == device[after]
    before, after, reach = before[is_next], after[is_next], running_maximum(device[own], end[own])
    gap[before] = np.maximum(start[after] - reach[:-1][is_next], 0)
    following[before] = thread[after]
    times = {"start_ns": start, "end_ns": end, "busy_ns": busy, "gap_ns": gap, "thread_key": following}
    columns = (as_numbers(name, values) for name, values in times.items())
    return pl.DataFrame([*columns, *_sum_kernels(row, ops, count)])


def _sum_kernels(row: Int64s, ops: LaunchedOps, count: int) -> list[pl.Series]:
    """Sum the kernels of each batch, and count the calls that launched them.

    All calls count, and those of CUDA graphs apart.
    """
    kernels, call, gpu_ops = np.flatnonzero((row >= 0) & ops.is_kernel), ops.call, ops.gpu_ops
    launched = np.append(ops.calls.match(GRAPH_LAUNCH), False)[call[kernels]]
    in_graph: Bools = launched | has_value(gpu_ops["graph_id"])[kernels]
    in_graph |= is_among(gpu_ops["kind"], ("graph",))[kernels]
    duration = (ops.end - ops.start)[kernels]
    series = []
    for name, mask in (("", np.ones(len(kernels), np.bool_)), ("graph_", in_graph)):
        rows, calls = row[kernels[mask]], call[kernels[mask]]
        total = np.zeros(count, dtype=np.int64)
        np.add.at(total, rows, duration[mask])
        # several kernels of a graph have one call; kernels without a known call count each
        _, first = np.unique(
            pack(rows, np.where(calls < 0, -1 - np.arange(len(calls)), calls)), return_index=True
        )
        series += [
            pl.Series("kernel_ns" if not name else "graph_ns", total),
            pl.Series(f"{name}launch_count", np.bincount(rows[first], minlength=count)),
        ]
    return series


def build_gap_activities(
    gaps: pl.DataFrame,
    *,
    iterations: pl.DataFrame,
    named_jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Measure the activities of the launching thread in each gap.

    At each moment the first of these counts: the innermost call that waits or copies; the innermost range;
    another call of `presets/activities/calls.toml`. Where the thread has none of them, ranges of other
    threads in the report that launch no batch count, as those of the scheduler of an engine.

    Args:
        gaps: end_ns, gap_ns (null: none) and thread_key.
        iterations: `RANGES` of batches, in which the host launches.
        named_jobs: `NAMED_JOBS`; ranges whose role is in `HOST_ACTIVITIES` count.
        api_calls: `API_CALLS`.
        os_calls: `OS_CALLS`; empty unless recorded.

    Returns:
        `HOST_ACTIVITY_COLUMNS`, row by row: ns whose sum is the gap; null without one.
    """
    has_gap = (gaps["gap_ns"].is_not_null() & gaps["thread_key"].is_not_null()).to_numpy()
    rows = np.flatnonzero(has_gap)
    begin = numbers(gaps["end_ns"])[rows]
    until, thread = begin + numbers(gaps["gap_ns"])[rows], numbers(gaps["thread_key"])[rows]
    ranges = _list_ranges(iterations, named_jobs)
    patterns = load_activities()
    inside = pl.concat(
        [
            _list_calls(api_calls, thread, patterns["inside"]),
            _list_calls(os_calls, thread, patterns["system"]),
        ]
    )
    outside = _list_calls(api_calls, thread, patterns["outside"])
    edges = [numbers(frame[name]) for frame in (ranges, inside, outside) for name in ("start_ns", "end_ns")]
    gap, time, ends = split_at(begin, until, np.unique(np.concatenate(edges)))
    of_thread = thread[gap]
    activity = np.full(len(gap), -1)
    for intervals in (inside, ranges, outside):
        activity = np.where(activity < 0, _find_activities(of_thread, time, intervals), activity)
    launching = gaps["thread_key"].drop_nulls().unique()
    anywhere = ranges.filter(~pl.col("thread_key").is_in(launching.implode())).with_columns(
        thread_key=pl.lit(0, pl.Int64)
    )
    activity = np.where(activity < 0, _find_activities(np.zeros_like(of_thread), time, anywhere), activity)
    activity = np.where(activity < 0, HOST_ACTIVITIES.index("other"), activity)
    total = np.zeros((len(gaps), len(HOST_ACTIVITIES)), dtype=np.int64)
    np.add.at(total, (rows[gap], activity), ends - time)
    return pl.DataFrame(
        [
            as_numbers(name, total[:, at]).set(pl.Series(~has_gap), None)
            for at, name in enumerate(HOST_ACTIVITY_COLUMNS)
        ]
    )


def _list_ranges(iterations: pl.DataFrame, named_jobs: pl.DataFrame) -> pl.DataFrame:
    """List the ranges that are activities: thread_key, start_ns, end_ns, activity (index).

    Jobs follow iterations, so that they are inside these.
    """
    jobs = named_jobs.filter(pl.col("role").is_in(HOST_ACTIVITIES)).select(
        "thread_key", "end_thread_key", "start_ns", "end_ns", "role"
    )
    both = pl.concat([iterations.with_columns(role=pl.lit("launching")).select(jobs.columns), jobs])
    activity = pl.col("role").replace_strict(
        HOST_ACTIVITIES, range(len(HOST_ACTIVITIES)), return_dtype=pl.Int64
    )
    return both.filter(pl.col("end_thread_key").is_null()).select(
        "thread_key", "start_ns", "end_ns", activity=activity
    )


def _list_calls(api_calls: pl.DataFrame, thread: Int64s, patterns: dict[str, str]) -> pl.DataFrame:
    """List the calls of some threads that are activities: thread_key, start_ns, end_ns, activity (index)."""
    own = api_calls.filter(pl.col("thread_key").is_in(list_distinct(thread).tolist()))
    activity = np.full(len(own), -1)
    for name, pattern in patterns.items():
        activity[(activity < 0) & is_named(own["name"], pattern)] = HOST_ACTIVITIES.index(name)
    return (
        own.select("thread_key", "start_ns", "end_ns")
        .with_columns(activity=pl.Series(activity))
        .filter(pl.col("activity") >= 0)
    )


def _find_activities(owner: Int64s, time: Int64s, intervals: pl.DataFrame) -> Int64s:
    """Find the activity of the innermost interval of the owner around each moment; -1 without one."""
    at = find_innermost(
        owner,
        time,
        interval_owner=numbers(intervals["thread_key"]),
        start=numbers(intervals["start_ns"]),
        end=numbers(intervals["end_ns"]),
    )
    return np.append(numbers(intervals["activity"]), -1)[at]


_KEYS = ["process_key", "device_id", "step"]
_KINDS = BATCH_KIND.categories.to_list()
_MOST_GRAPHS = (
    4  # launched by a decode: drafts and their verification; a piecewise batch launches some per layer
)
_LEAST_GRAPH_SHARE = 0.5  # of the kernels' time in a decode: sampling is outside the graph


def widen_batches(step_ranges: pl.DataFrame) -> pl.DataFrame:
    """Move the end of each step of inference to the start of the next one on its thread.

    Engines sample, and update requests, after the range of an iteration. The last range of a thread keeps its
    end, and so do ranges inside others, and those whose batch is unknown: several threads may use a device at
    once.

    Args:
        step_ranges: `NAMED_STEPS`.

    Returns:
        The same rows.
    """
    is_batch = pl.col("batch").is_not_null() & (pl.col("batch") != "unknown")
    ordered = step_ranges.filter(is_batch).sort(
        "thread_key", "start_ns", "end_ns", descending=[False, False, True]
    )
    before = pl.col("end_ns").cum_max().shift().over("thread_key")
    outermost = ordered.filter((pl.col("start_ns") >= before).fill_null(value=True))
    following = outermost.select("range_id", following_ns=pl.col("start_ns").shift(-1).over("thread_key"))
    widened = step_ranges.join(following, on="range_id", how="left", maintain_order="left")
    return widened.with_columns(end_ns=pl.max_horizontal("end_ns", "following_ns")).pipe(conform, NAMED_STEPS)


def find_batches(
    step_ranges: pl.DataFrame,
    *,
    steps: pl.DataFrame,
    ranges: pl.DataFrame,
    named_jobs: pl.DataFrame,
    ops: LaunchedOps,
    os_calls: pl.DataFrame,
) -> pl.DataFrame:
    """Find the batches of a report.

    The kind is that of the name, or follows from the counts in it. Names of some engines have neither; then a
    batch whose kernels are mostly those of a few CUDA graphs is a decode, and others are unknown: prefills,
    mixed batches, or decodes too large for a graph. A range inside the range of a step may have what that
    lacks.

    Args:
        step_ranges: `NAMED_STEPS`, from `widen_batches`.
        steps: `STEPS` of them.
        ranges: `RANGES`.
        named_jobs: `NAMED_JOBS`; roles that are `HOST_ACTIVITIES` are those of the host.
        ops: Operations of the report.
        os_calls: `OS_CALLS`; empty unless recorded.

    Returns:
        `BATCHES`. Empty without steps of inference.
    """
    named = class_batches(step_ranges, steps)
    if named.is_empty():
        return BATCHES.to_frame()
    times = build_batch_times(named, ops)
    iterations = ranges.join(
        step_ranges.filter(pl.col("batch").is_not_null()), on="range_id", how="semi", maintain_order="left"
    )
    batches = named.hstack(times.drop("thread_key")).hstack(
        build_gap_activities(
            times, iterations=iterations, named_jobs=named_jobs, api_calls=ops.api_calls, os_calls=os_calls
        )
    )
    is_decode = (
        (pl.col("batch") == "launches")
        & pl.col("graph_launch_count").is_between(1, _MOST_GRAPHS)
        & (pl.col("graph_ns") >= _LEAST_GRAPH_SHARE * pl.col("kernel_ns"))
    )
    source = (
        pl.when(pl.col("kind").is_not_null()).then(pl.lit("name")).when(is_decode).then(pl.lit("launches"))
    )
    kind = pl.coalesce("kind", pl.when(is_decode).then(pl.lit("decode")))
    return batches.with_columns(source=source, kind=kind).sort(_KEYS).pipe(conform, BATCHES)


def class_batches(step_ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Class the batches among steps by the names of their ranges.

    Of several ranges in a step, the one with most counts, or a kind, comes first; of equal ones the
    outermost. Tokens of no requests are 0.

    Args:
        step_ranges: `NAMED_STEPS`, from `widen_batches`.
        steps: `STEPS` of them.

    Returns:
        Keys of `STEPS`, host_start_ns, host_end_ns, batch (of its rule), kind and counts; by device and
        start.
    """
    ranges = step_ranges.filter(pl.col("batch").is_not_null()).select(
        "process_key", "batch", *BATCH_COUNTS, range_start_ns="start_ns", range_end_ns="end_ns"
    )
    spans = (
        steps.filter(source="range")
        .drop_nulls("host_start_ns")
        .select(*_KEYS, "host_start_ns", "host_end_ns")
    )
    owners = ranges.sort("range_start_ns").join_asof(
        spans.select("process_key", "host_start_ns", "host_end_ns").unique().sort("host_start_ns"),
        left_on="range_start_ns",
        right_on="host_start_ns",
        by="process_key",
        check_sortedness=False,
    )
    known = pl.sum_horizontal(pl.col(*BATCH_COUNTS).is_not_null().cast(pl.Int64))
    best = (
        owners.filter(pl.col("range_start_ns") < pl.col("host_end_ns"))
        .with_columns(is_kind=pl.col("batch").is_in(_KINDS), known=known)
        .sort("known", "is_kind", "range_start_ns", "range_end_ns", descending=[True, True, False, True])
        .unique(["process_key", "host_start_ns"], keep="first", maintain_order=True)
        .drop("host_end_ns")
    )
    tokens = {
        f"{part}_tokens": pl.when(pl.col(f"{part}_requests") == 0).then(0).otherwise(f"{part}_tokens")
        for part in ("context", "generation")
    }
    # of its rule, else by counts of requests
    context, generation = pl.col("context_requests") > 0, pl.col("generation_requests") > 0
    kind = (
        pl.when(pl.col("batch").is_in(_KINDS))
        .then(pl.col("batch"))
        .when(context & generation)
        .then(pl.lit("mixed"))
        .when(context & ~generation)
        .then(pl.lit("prefill"))
        .when(~context & generation)
        .then(pl.lit("decode"))
    )
    return (
        spans.join(best, on=["process_key", "host_start_ns"])
        .with_columns(kind=kind, **tokens)
        .sort("process_key", "device_id", "host_start_ns")
    )
