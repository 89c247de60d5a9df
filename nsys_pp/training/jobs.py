"""Jobs of one report: their times on each device, and their steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import (
    EVER,
    NEVER,
    as_numbers,
    gather,
    gather_rows,
    has_value,
    index_rows,
    is_among,
    list_distinct,
    numbers,
    pick,
)
from nsys_pp.arrays.intervals import find_innermost
from nsys_pp.arrays.search import expand_windows, find_last, find_rows, number_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_frame, build_nulls, conform, conform_part
from nsys_pp.frames.report import MOST_EARLY_NS
from nsys_pp.frames.training import JOB_KIND, JOB_RANGES, JOBS, MESSAGE_KINDS, SCHEDULED_KINDS
from nsys_pp.training.launched import LaunchedOps, list_devices, number_devices
from nsys_pp.training.names import NAMED_JOBS, find_parents

# Kinds of jobs with work on several threads, as in PyTorch's autograd.
THREADED_KINDS = ("backward", "forward_backward", "weight_gradient")
_NAMED = {  # columns of `NAMED_JOBS` and of `JOBS`
    **{name: name for name in NAMED_JOBS if name in JOBS and name not in ("start_ns", "end_ns")},
    "start_ns": "host_start_ns",
    "end_ns": "host_end_ns",
}
_MEASURED = {
    "gpu_start_ns": "start_ns",
    "gpu_end_ns": "end_ns",
    **{name: name for name in ("busy_ns", "total_ns", "op_count")},
}
_COMPUTED = {"gpu_start_ns": "compute_start_ns", "gpu_end_ns": "compute_end_ns", "busy_ns": "compute_ns"}


def build_jobs(
    named_jobs: pl.DataFrame,
    *,
    projections: pl.DataFrame,
    compute: pl.DataFrame,
    ops: LaunchedOps,
) -> pl.DataFrame:
    """Build the jobs of a report: one row per job and device.

    Args:
        named_jobs: `NAMED_JOBS`.
        projections: `PROJECTIONS` of at least these ranges, onto all operations that count.
        compute: `PROJECTIONS` of at least these ranges, onto kernels that are not communication.
        ops: Operations of the report.

    Returns:
        `JOBS`, with `step` null until `assign_steps`. A job without launches has one row without a device.
        Empty in, empty out.
    """
    if named_jobs.is_empty():  # projections of a million ranges need not be looked through
        return JOBS.to_frame()
    job, device_id, ran, computed = _pair_with_devices(named_jobs, projections, compute)
    jobs = build_frame(
        [
            *_gather(named_jobs, _NAMED, job),
            *_gather(projections, _MEASURED, ran),
            *_gather(compute, _COMPUTED, computed),
            as_numbers("device_id", device_id, dtype=pl.Int32),
            build_nulls("step", pl.Int64(), len(job)),
        ]
    )
    return conform(jobs.hstack([as_numbers("launch_delay_ns", _find_delays(jobs, ops))]), JOBS)


def _gather(frame: pl.DataFrame, names: Mapping[str, str], row: Int64s) -> list[pl.Series]:
    """Gather rows of some columns under other names; all null where the row is -1."""
    gathered = gather_rows(frame, tuple(names), row)
    return [gathered[name].alias(of_job) for name, of_job in names.items()]


def _pair_with_devices(
    named_jobs: pl.DataFrame, projections: pl.DataFrame, compute: pl.DataFrame
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Pair jobs with their devices, in the order of `JOBS`; jobs without a device have one row.

    Returns:
        Row of `named_jobs`; device_id, `NEVER` without one; rows of `projections` and of `compute`, -1
        without one.
    """
    range_id = numbers(named_jobs["range_id"])
    order = np.lexsort((range_id, numbers(named_jobs["start_ns"])))
    both = (projections, compute)
    device_ids = list_distinct(np.concatenate([numbers(projected["device_id"]) for projected in both]))
    count = max(len(device_ids), 1)
    keys = []  # indices of the job and of the device as one number
    for projected in both:
        job = find_rows(range_id[order], numbers(projected["range_id"]))
        device = np.searchsorted(device_ids, numbers(projected["device_id"]))
        keys.append(np.where(job < 0, -1, job * count + device))
    reached = list_distinct(np.concatenate(keys))
    reached = reached[reached >= 0]
    is_without_device = np.ones(len(named_jobs), dtype=np.bool_)
    is_without_device[reached // count] = False
    pairs = np.sort(np.concatenate([reached, np.flatnonzero(is_without_device) * count]))
    job = pairs // count
    device_id = np.where(is_without_device[job], NEVER, np.append(device_ids, NEVER)[pairs % count])
    ran, computed = (np.where(is_without_device[job], -1, find_rows(key, pairs)) for key in keys)
    return order[job], device_id, ran, computed


def widen_projections(narrow: pl.DataFrame, wide: pl.DataFrame) -> pl.DataFrame:
    """Add projections of scope "process", for jobs on several threads that have none of scope "auto".

    Jobs that have some stay as they are: threads that no job waits for, as loaders of data, launch kernels at
    any time.

    Args:
        narrow: `PROJECTIONS` of scope "auto".
        wide: `PROJECTIONS` of scope "process" for the ranges of `THREADED_KINDS` among them.

    Returns:
        `PROJECTIONS`, in no order.
    """
    return pl.concat([narrow, wide.join(narrow, on="range_id", how="anti")])


def assign_steps(frame: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Assign each row to the step open on the CPU of its process at its start.

    A step without a range on the CPU (the first step, if the capture began inside it) contains all rows
    before the other steps. Rows of frames without `host_start_ns` are assigned by `start_ns`, their start on
    the device.

    Args:
        frame: `JOBS`, or another frame of a report with process_key, device_id, start_ns and step.
        steps: `STEPS` of the same report.

    Returns:
        The same rows in the same order with `step`, null outside all steps.
    """
    step = pick(numbers(steps["step"]), find_step_rows(frame, steps), NEVER)
    return frame.with_columns(as_numbers("step", step))


def find_step_rows(frame: pl.DataFrame, steps: pl.DataFrame) -> Int64s:
    """Find the row of `steps` of each row of a frame, by the rule of `assign_steps`; -1 outside all steps."""
    devices = list_devices(steps)
    of_device, on_device = number_devices(steps, devices), number_devices(frame, devices)
    if "host_start_ns" not in frame.columns:
        at, began, until = numbers(frame["start_ns"]), numbers(steps["start_ns"]), numbers(steps["end_ns"])
        return _find_open(on_device, at, of_device, began, until)
    at, began = numbers(frame["host_start_ns"]), numbers(steps["host_start_ns"])
    # a step without a range ends on the CPU at the start of the first step with one
    ended = numbers(steps["host_end_ns"])
    until = ended.copy()
    for device in list_distinct(of_device):
        own = of_device == device
        until[own & (ended == NEVER)] = began[own & (began != NEVER)].min(initial=EVER)
    step_row = _find_open(on_device, at, of_device, began, until)
    without_device = np.flatnonzero(numbers(frame["device_id"]) == NEVER)
    process, of_process = (numbers(table["process_key"]) for table in (frame, steps))
    step_row[without_device] = _find_open(
        process[without_device], at[without_device], of_process, began, until
    )
    return step_row


def _find_open(group: Int64s, at: Int64s, of_group: Int64s, began: Int64s, until: Int64s) -> Int64s:
    """Find the last span of the group started at or before each time; -1 without one, or if it has ended."""
    order = np.argsort(began, kind="stable")
    step_row = pick(order, find_last(group, at, of_group[order], began[order]), -1)
    return np.where(at < pick(until, step_row, NEVER), step_row, -1)


def _find_delays(jobs: pl.DataFrame, ops: LaunchedOps) -> Int64s:
    """Measure the delay from the launch to the start of the first operation of each job.

    Returns:
        Delays; `NEVER` where unknown, or impossible.
    """
    of_job, start = number_devices(jobs, ops.devices), numbers(jobs["start_ns"])
    api_calls, launches = ops.api_calls, ops.launches
    parts = []
    for device in range(len(ops.devices)):
        own, rows = ops.list_by_start(ops.device == device), np.flatnonzero(of_job == device)
        parts.append(_pair(rows, start[rows], own, ops.start[own]))
    row, op = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (start[:0],) * 2
    launched = numbers(launches["op_id"])
    pair, launch = _pair(np.arange(len(op)), op, np.arange(len(launched)), launched)
    row, call = row[pair], numbers(launches["call_row"])[launch]

    began, ended = numbers(api_calls["start_ns"])[call], numbers(api_calls["end_ns"])[call]
    is_inside = began >= numbers(jobs["host_start_ns"])[row]
    is_inside &= ended <= numbers(jobs["host_end_ns"])[row]
    delays = np.full(len(jobs), EVER)
    np.minimum.at(delays, row[is_inside], (start[row] - began)[is_inside])
    return np.where((delays == EVER) | (delays < -MOST_EARLY_NS), NEVER, delays)


def _pair(rows: Int64s, values: Int64s, others: Int64s, of_others: Int64s) -> tuple[Int64s, Int64s]:
    # all pairs with the same value; the values of the others ascend
    first, last = (np.searchsorted(of_others, values, side=side) for side in ("left", "right"))
    return np.repeat(rows, last - first), others[expand_windows(first, last)]


def list_job_ranges(jobs: pl.DataFrame) -> pl.DataFrame:
    """List the ranges of `JOBS` that have operations: `JOB_RANGES`."""
    range_id = numbers(jobs["range_id"])
    rows = np.flatnonzero((range_id != NEVER) & has_value(jobs["start_ns"]))
    _, first = np.unique(range_id[rows], return_index=True)
    return index_rows(jobs[JOB_RANGES.names()], rows[first])


_LEAST_SHARE = 0.5  # of the steps, that contain a name
_MOST_PER_STEP = 64  # more ranges in a step are operators, not phases


def find_phases(ranges: pl.DataFrame, step_ranges: pl.DataFrame, named_jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the phases of steps: ranges of the step's thread directly inside it.

    Most steps have their names.

    Numbers in names do not distinguish them. If each step has a single phase, its own phases follow instead.

    Args:
        ranges: `RANGES`.
        step_ranges: `NAMED_STEPS`.
        named_jobs: `NAMED_JOBS`.

    Returns:
        `NAMED_JOBS` of kind "other", by range_id, without the ranges of `named_jobs`. Empty if a range is a
        forward or a backward, without steps, and for steps that contain more ranges than phases would be.
    """
    nothing = NAMED_JOBS.to_frame()
    if step_ranges.is_empty() or named_jobs["kind"].is_in(SCHEDULED_KINDS).any():
        return nothing
    threads = step_ranges["thread_key"].unique()
    own = ranges.filter(pl.col("thread_key").is_in(threads.implode()), pl.col("end_thread_key").is_null())
    range_id = own["range_id"].to_numpy()
    is_around = np.isin(range_id, step_ranges["range_id"].to_numpy())
    if not is_around.any():
        return nothing
    parent = find_parents(own, np.ones(len(own), dtype=np.bool_))
    is_phase = _list_inside(own, parent, is_around)
    if is_phase.sum() <= is_around.sum() and (inner := _list_inside(own, parent, is_phase)).any():
        is_phase = inner
    is_job = np.isin(range_id, named_jobs["range_id"].to_numpy())
    row = np.flatnonzero(is_phase & ~is_job)
    outer_id = as_numbers("outer_id", np.where(is_job[parent[row]], range_id[parent[row]], NEVER))
    return conform_part(own[row].with_columns(outer_id, kind=pl.lit("other")), NAMED_JOBS)


def _list_inside(ranges: pl.DataFrame, parent: Int64s, is_around: Bools) -> Bools:
    """Return the mask of the ranges directly inside some ranges, of names that most of these contain."""
    inside = np.flatnonzero((parent >= 0) & is_around[parent])
    around = parent[inside]
    is_phase = np.zeros(len(ranges), dtype=np.bool_)
    if len(inside) == 0 or len(inside) > _MOST_PER_STEP * is_around.sum():
        return is_phase
    folded = ranges["name"][inside].cast(pl.String).str.replace_all("[0-9]+", "0")
    counts = pl.DataFrame({"name": folded, "around": around}).with_columns(
        share=pl.col("around").n_unique().over("name") / int(is_around.sum())
    )
    is_phase[inside] = (counts["share"] >= _LEAST_SHARE).to_numpy()
    return is_phase


def list_gaps(named_jobs: pl.DataFrame) -> pl.DataFrame:
    """List the gaps between the ranges of messages on each thread.

    Args:
        named_jobs: `NAMED_JOBS`.

    Returns:
        `NAMED_JOBS` of kind "other", by thread and start, with ids of their own. Empty if a range is a
        forward or a backward.
    """
    if is_among(named_jobs["kind"], SCHEDULED_KINDS).any():
        return NAMED_JOBS.to_frame()
    messages = named_jobs.filter(pl.col("kind").is_in(MESSAGE_KINDS), pl.col("end_thread_key").is_null())
    gaps = (
        messages.sort("thread_key", "start_ns")
        .select(
            "process_key",
            "thread_key",
            start_ns=pl.col("end_ns").shift(1).over("thread_key"),
            end_ns="start_ns",
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
    )
    return _number(gaps.with_columns(kind=pl.lit("other")), named_jobs)


def _number(gaps: pl.DataFrame, named_jobs: pl.DataFrame) -> pl.DataFrame:
    """Give the time between ranges ids of its own (`NAMED_JOBS`)."""
    first_id = int(named_jobs["range_id"].to_numpy().max(initial=0)) + 1
    range_id = first_id + pl.int_range(pl.len(), dtype=pl.Int64)
    return conform_part(gaps.with_columns(range_id=range_id, is_open=pl.lit(value=False)), NAMED_JOBS)


# Name of a backward that no range names: what is launched between a forward and the optimizer after it.
BY_POSITION = "backward (by position)"


def list_unmarked_backwards(named_jobs: pl.DataFrame) -> pl.DataFrame:
    """List the time between each forward and the optimizer after it, where no range is a backward.

    Args:
        named_jobs: `NAMED_JOBS`.

    Returns:
        `NAMED_JOBS` of kind "backward" and name `BY_POSITION`, by thread and start, with ids of their own.
        Empty if a range is a backward.
    """
    forwards, others = ("forward",), set(SCHEDULED_KINDS) - {"forward"}
    if is_among(named_jobs["kind"], others).any() or not is_among(named_jobs["kind"], forwards).any():
        return NAMED_JOBS.to_frame()
    outer = named_jobs.filter(
        pl.col("kind").is_in(["forward", "optimizer"]), pl.col("end_thread_key").is_null(), ~pl.col("is_open")
    ).sort("thread_key", "start_ns")
    between = outer.select(
        "process_key",
        "thread_key",
        start_ns=pl.col("end_ns").cum_max().shift().over("thread_key"),
        end_ns="start_ns",
        is_backward=(pl.col("kind") == "optimizer")
        & (pl.col("kind").shift().over("thread_key") == "forward"),
    ).filter("is_backward", pl.col("start_ns") < pl.col("end_ns"))
    named = {"name": pl.lit(BY_POSITION), "kind": pl.lit("backward")}
    return _number(between.drop("is_backward").with_columns(**named), named_jobs)


def find_gap_jobs(
    named_jobs: pl.DataFrame, halves: pl.DataFrame, gaps: pl.DataFrame, compute: pl.DataFrame
) -> pl.DataFrame:
    """Find the gaps that are jobs.

    A job computes, and messages of one direction are sent before the next such gap.

    Args:
        named_jobs: `NAMED_JOBS`.
        halves: `HALVES`, for the direction of sends that also receive.
        gaps: From `list_gaps`.
        compute: `COMPUTED` of them.

    Returns:
        `NAMED_JOBS` of kinds "forward" and "backward". Empty if the direction of a send is unknown, if a gap
        is followed by sends of both directions, or if a thread has not as many forwards as backwards: then
        some jobs have no range of a send.
    """
    computes = gaps.join(compute.select("range_id").unique(), on="range_id", how="semi")
    sends = (
        named_jobs.filter(pl.col("kind").is_in(("send", "send_receive")))
        .join(halves.select("name", "send_direction"), on="name", how="left")
        .select("thread_key", "start_ns", sent=pl.coalesce("send_direction", "direction"))
        .sort("start_ns")
    )
    if sends["sent"].has_nulls():
        return NAMED_JOBS.to_frame()
    after = sends.join_asof(
        computes.sort("end_ns").select("thread_key", "range_id", "end_ns"),
        left_on="start_ns", right_on="end_ns", by="thread_key", strategy="backward", check_sortedness=False,
    )  # fmt: skip
    directions = after.drop_nulls("range_id").group_by("range_id").agg(pl.col("sent").unique())
    if (directions["sent"].list.len() > 1).any():
        return NAMED_JOBS.to_frame()
    jobs = computes.join(directions.with_columns(pl.col("sent").list.first()), on="range_id").with_columns(
        kind=pl.col("sent").cast(pl.String)
    )
    forwards = pl.col("kind") == "forward"
    balance = jobs.group_by("thread_key").agg(forwards.sum().alias("forwards"), total=pl.len())
    if (2 * balance["forwards"] != balance["total"]).any():
        return NAMED_JOBS.to_frame()
    return conform_part(jobs.with_columns(direction=None), NAMED_JOBS).sort("range_id")


def find_job_kinds(ops: LaunchedOps, jobs: pl.DataFrame) -> pl.Series:
    """Find the kind of the innermost job around the launch of each operation.

    Jobs on the thread of the launch come first; launches outside these belong to a job of `THREADED_KINDS` on
    another thread of the process, as backwards run on threads of their own.

    Args:
        ops: Operations of the report.
        jobs: `JOBS` of the same report.

    Returns:
        `JOB_KIND` per operation, in order; null without a known launch, and outside all jobs.
    """
    time, thread = ops.launch, ops.thread
    if jobs.is_empty():
        return pl.Series("job_kind", [None], JOB_KIND).new_from_index(0, len(time))
    jobs = jobs[["process_key", "thread_key", "host_start_ns", "host_end_ns", "kind"]]
    jobs = index_rows(jobs, number_rows(jobs.get_columns())[0])
    job = np.full(len(time), -1)
    has_call = ops.call >= 0
    job[has_call] = _find_jobs(
        thread[has_call], time[has_call], jobs, "thread_key", np.ones(len(jobs), np.bool_)
    )
    is_outside = has_call & (job < 0)
    process, is_threaded = numbers(ops.gpu_ops["process_key"]), is_among(jobs["kind"], THREADED_KINDS)
    job[is_outside] = _find_jobs(process[is_outside], time[is_outside], jobs, "process_key", is_threaded)
    return gather(jobs["kind"], job).alias("job_kind")


def _find_jobs(owner: Int64s, time: Int64s, jobs: pl.DataFrame, key: str, is_chosen: Bools) -> Int64s:
    """Find the innermost of the chosen jobs with the same owner around each time; -1 without one."""
    rows = np.flatnonzero(is_chosen)
    of, start, end = (numbers(jobs[name])[rows] for name in (key, "host_start_ns", "host_end_ns"))
    return np.append(rows, -1)[find_innermost(owner, time, interval_owner=of, start=start, end=end)]
