"""Jobs of one report: their times on each device, and their steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, gather_rows, list_distinct, numbers, pick, set_column
from nsys_pp.arrays.search import find_last, find_rows
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame, build_nulls
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import MOST_EARLY_NS
from nsys_pp.frames.training import JOBS
from nsys_pp.training.report.devices import list_devices, number_devices
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.vocabulary import NAMED_JOBS

THREADED_KINDS = ("backward", "forward_backward", "weight_gradient")
"""Kinds of jobs with work on several threads, as in PyTorch's autograd."""
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
_LATEST = np.int64(1 << 62)


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
    columns = [
        *_gather(named_jobs, _NAMED, job),
        *_gather(projections, _MEASURED, ran),
        *_gather(compute, _COMPUTED, computed),
        as_numbers("device_id", device_id, dtype=pl.Int32),
        build_nulls("step", pl.Int64(), len(job)),
    ]
    jobs = build_frame(columns)
    delays = _find_delays(jobs, ops)
    return conform(jobs.hstack([as_numbers("launch_delay_ns", delays)]), JOBS)


def _gather(frame: pl.DataFrame, names: Mapping[str, str], row: Int64s) -> list[pl.Series]:
    """Gather rows of some columns under other names; all null where the row is -1."""
    gathered = gather_rows(frame, tuple(names), row)
    return [gathered[name].alias(of_job) for name, of_job in names.items()]


def _pair_with_devices(
    named_jobs: pl.DataFrame, projections: pl.DataFrame, compute: pl.DataFrame
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Pair jobs with their devices, in the order of `JOBS`; jobs without a device have one row.

    Returns:
        Row of `named_jobs`; device_id, `NEVER` without one; rows of `projections` and of `compute`, -1 without one.
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

    Jobs that have some stay as they are: threads that no job waits for, as loaders of data, launch kernels at any time.

    Args:
        narrow: `PROJECTIONS` of scope "auto".
        wide: `PROJECTIONS` of scope "process" for the ranges of `THREADED_KINDS` among them.

    Returns:
        `PROJECTIONS`, in no order.
    """
    return pl.concat([narrow, wide.join(narrow, on="range_id", how="anti")])


def assign_steps(frame: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Assign each row to the step open on the CPU of its process at its start.

    A step without a range on the CPU (the first step, if the capture began inside it) contains all rows before the
    other steps. Rows of frames without `host_start_ns` are assigned by `start_ns`, their start on the device.

    Args:
        frame: `JOBS`, or another frame of a report with process_key, device_id, start_ns and step.
        steps: `STEPS` of the same report.

    Returns:
        The same rows in the same order with `step`, null outside all steps.
    """
    step = pick(numbers(steps["step"]), find_step_rows(frame, steps), NEVER)
    return set_column(frame, as_numbers("step", step))


def find_step_rows(frame: pl.DataFrame, steps: pl.DataFrame) -> Int64s:
    """Find the row of `steps` of each row of a frame, by the rule of `assign_steps`; -1 outside all steps."""
    devices = list_devices(steps)
    of_device, on_device = number_devices(steps, devices), number_devices(frame, devices)
    if "host_start_ns" not in frame.columns:
        at, began, until = numbers(frame["start_ns"]), numbers(steps["start_ns"]), numbers(steps["end_ns"])
        return _find_open(on_device, at, of_device, began, until)
    at, began = numbers(frame["host_start_ns"]), numbers(steps["host_start_ns"])
    until = _end_on_host(of_device, began, numbers(steps["host_end_ns"]))
    step_row = _find_open(on_device, at, of_device, began, until)
    if not frame["device_id"].null_count():
        return step_row
    without_device = np.flatnonzero(numbers(frame["device_id"]) == NEVER)
    process, of_process = (numbers(table["process_key"]) for table in (frame, steps))
    step_row[without_device] = _find_open(
        process[without_device], at[without_device], of_process, began, until
    )
    return step_row


def _end_on_host(of_device: Int64s, began: Int64s, ended: Int64s) -> Int64s:
    """Return the ends of steps on the CPU; a step without a range ends at the start of the first step with one."""
    until = ended.copy()
    for device in list_distinct(of_device):
        own = of_device == device
        until[own & (ended == NEVER)] = began[own & (began != NEVER)].min(initial=_LATEST)
    return until


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
        own, rows = np.flatnonzero(ops.device == device), np.flatnonzero(of_job == device)
        own = own[np.argsort(ops.start[own], kind="stable")]
        parts.append(_pair(rows, start[rows], own, ops.start[own]))
    row, op = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (start[:0],) * 2
    launched = numbers(launches["op_id"])
    pair, launch = _pair(np.arange(len(op)), op, np.arange(len(launched)), launched)
    row, call = row[pair], numbers(launches["call_row"])[launch]

    began, ended = numbers(api_calls["start_ns"])[call], numbers(api_calls["end_ns"])[call]
    is_inside = began >= numbers(jobs["host_start_ns"])[row]
    is_inside &= ended <= numbers(jobs["host_end_ns"])[row]
    delays = np.full(len(jobs), _LATEST)
    np.minimum.at(delays, row[is_inside], (start[row] - began)[is_inside])
    return np.where((delays == _LATEST) | (delays < -MOST_EARLY_NS), NEVER, delays)


def _pair(rows: Int64s, values: Int64s, others: Int64s, of_others: Int64s) -> tuple[Int64s, Int64s]:
    """List all pairs of rows and others with the same value; the values of the others ascend."""
    first, last = (np.searchsorted(of_others, values, side=side) for side in ("left", "right"))
    return np.repeat(rows, last - first), others[expand_windows(first, last)]
