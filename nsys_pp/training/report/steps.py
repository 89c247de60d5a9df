"""Steps of one report on each device.

A step lasts from the first operation of its computing streams to the first one of the next step:

    CPU        [ step_1                  )     [ step_2                 )
    stream 7         [ set )[ gemm ) ... [ adam )    [ set )[ gemm ) ...
    stream 20    [ copy of the next batch )
    step 1           [                               )
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import NEVER, as_numbers, gather_indices, is_among, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.search import find_first, find_rows
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.frames.training import COMPUTE_KINDS, STEPS
from nsys_pp.training.report.devices import list_devices, number_devices
from nsys_pp.training.report.job_steps import find_job_steps
from nsys_pp.training.report.jobs import find_step_rows

_SOURCES = pl.Series(["range", "jobs", "capture"])
_RANGE, _JOBS, _CAPTURE = range(3)  # indices of `_SOURCES`


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computing:
    """Operations other than communication, on streams with compute kernels."""

    device: Int64s  # index of the device
    start: Int64s
    end: Int64s
    launch: Int64s  # start of the launching call; of the operation, where the call is unknown
    is_kernel: Bools  # or a graph, not a copy or set


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepBounds:
    """Steps of all devices, before their start and end are computed; `NEVER` stands for null."""

    device: Int64s  # index of the device
    source: Int64s  # index of `_SOURCES`
    row: Int64s  # of `NAMED_STEPS`, -1 without a range
    number: Int64s  # in the name of the range
    host_start: Int64s
    host_end: Int64s
    first: Int64s  # start of its first kernel that is not communication
    is_partial: Bools


def find_steps(
    step_ranges: pl.DataFrame,
    *,
    compute: pl.DataFrame,
    jobs: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """Find the steps of every device: by ranges, else by jobs, else one step for the whole capture.

    By jobs, a step begins where the micro-batches of the first chunk restart, or, where forwards have no
    numbers, with the first forward after an optimizer.

    Args:
        step_ranges: `NAMED_STEPS`.
        compute: `PROJECTIONS` of these ranges onto kernels that are not communication.
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        `STEPS`. Copies and sets count for the start and the end of steps if their stream has compute kernels.
        Devices without compute kernels have no steps. A step is partial if

        * its range, or a job in it, is open at the end of the capture;
        * it has no range, but jobs before the first range;
        * it is the first step by jobs, and no job receives, so that the start of its first wait is unknown;
        * it is the first or the last step, and has fewer jobs than the median step.
    """
    devices = list_devices(gpu_ops)
    ops = _list_computing(gpu_ops, devices, api_calls, launches)
    on_device = number_devices(jobs, devices)
    has_computed = ~jobs["compute_start_ns"].is_null().to_numpy()
    by_range = _build_range_steps(step_ranges, compute, devices)
    is_compute_job = has_computed & is_among(jobs["kind"], COMPUTE_KINDS)
    before = _build_steps_before_ranges(
        by_range, on_device[is_compute_job], numbers(jobs["host_start_ns"])[is_compute_job], ops
    )
    is_without_range = has_computed & ~np.isin(on_device, by_range.device)
    by_jobs = [_build_job_steps(jobs, is_without_range, devices)] if is_without_range.any() else []
    steps = _concatenate(before, by_range, *by_jobs)
    steps = _concatenate(
        steps, _build_capture_steps(np.setdiff1d(np.arange(len(devices)), steps.device), ops)
    )

    is_numbered, number, steps = _number_steps(steps)
    start, end, order = _find_edges(steps, ops)
    steps = _select(steps, order)
    columns = [
        as_numbers("step", number[order]),
        as_numbers("host_start_ns", steps.host_start),
        as_numbers("host_end_ns", steps.host_end),
        step_ranges["name"].gather(gather_indices(steps.row)).alias("name"),
        _SOURCES.gather(steps.source).alias("source"),
        pl.Series("is_numbered", is_numbered[order]),
        pl.Series("start_ns", start),
        pl.Series("end_ns", end),
    ]
    frame = devices[steps.device].hstack(columns)
    is_partial = steps.is_partial | _mark_cut_steps(frame, steps.device, jobs)
    return conform(frame.hstack([pl.Series("is_partial", is_partial)]), STEPS)


def _list_computing(
    gpu_ops: pl.DataFrame, devices: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> _Computing:
    device = number_devices(gpu_ops, devices)
    stream = pack(device, numbers(gpu_ops["context_id"]), numbers(gpu_ops["stream_id"]))
    is_kernel = is_among(gpu_ops["kind"], KERNEL_KINDS)
    is_own = ~gpu_ops["is_communication"].to_numpy()
    rows = np.flatnonzero(is_own & (is_kernel | np.isin(stream, np.unique(stream[is_own & is_kernel]))))
    start = numbers(gpu_ops["start_ns"])[rows]
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)[rows]
    launch = gather_calls(api_calls["start_ns"], call)
    return _Computing(
        device=device[rows],
        start=start,
        end=numbers(gpu_ops["end_ns"])[rows],
        launch=np.where(launch == NEVER, start, launch),
        is_kernel=is_kernel[rows],
    )


def _build_range_steps(
    step_ranges: pl.DataFrame, compute: pl.DataFrame, devices: pl.DataFrame
) -> _StepBounds:
    """Build the steps of step ranges on each device; of repeated ranges only the first is kept."""
    row = find_rows(numbers(step_ranges["range_id"]), numbers(compute["range_id"]))
    projected = compute[["device_id", "gpu_start_ns"]][np.flatnonzero(row >= 0)]
    row = row[row >= 0]
    device = number_devices(projected.with_columns(step_ranges["process_key"][row]), devices)
    start, end = (numbers(step_ranges[name])[row] for name in ("start_ns", "end_ns"))
    order = np.lexsort((-end, start, device))
    row, device, start, end = row[order], device[order], start[order], end[order]
    number = numbers(step_ranges["step"])[row]

    follows = np.append(False, device[1:] == device[:-1])[: len(row)]
    until = np.where(follows, np.roll(running_maximum(device, end), 1), NEVER)
    is_same = (number == np.roll(number, 1)) & (number != NEVER) & (start < until)
    kept = ~(follows & ((end <= until) | is_same))
    return _StepBounds(
        device=device[kept],
        source=np.full(kept.sum(), _RANGE),
        row=row[kept],
        number=number[kept],
        host_start=start[kept],
        host_end=end[kept],
        first=numbers(projected["gpu_start_ns"])[order][kept],
        is_partial=step_ranges["is_open"].to_numpy()[row[kept]],
    )


def _build_steps_before_ranges(
    by_range: _StepBounds, job_device: Int64s, job_start: Int64s, ops: _Computing
) -> _StepBounds:
    """Build a step before the first range of each device that has jobs before this range."""
    device, at = np.unique(by_range.device, return_index=True)
    first_jobs = [job_start[job_device == number].min(initial=-NEVER) for number in device]
    is_cut = np.array(first_jobs, dtype=np.int64) < by_range.host_start[at]
    device, number = device[is_cut], by_range.number[at[is_cut]]
    never = np.full(len(device), NEVER)
    return _StepBounds(
        device=device,
        source=np.full(len(device), _RANGE),
        row=np.full(len(device), -1),
        number=np.where(number == NEVER, NEVER, number - 1),
        host_start=never,
        host_end=never,
        first=_find_first_kernels(device, ops),
        is_partial=np.ones(len(device), dtype=np.bool_),
    )


def _build_job_steps(jobs: pl.DataFrame, is_without_range: Bools, devices: pl.DataFrame) -> _StepBounds:
    """Build the steps of devices without step ranges from their jobs."""
    job_steps = find_job_steps(jobs.filter(pl.Series(is_without_range)), jobs)
    return _StepBounds(
        device=number_devices(job_steps, devices),
        source=np.full(len(job_steps), _JOBS),
        row=np.full(len(job_steps), -1),
        number=np.full(len(job_steps), NEVER),
        host_start=numbers(job_steps["host_start_ns"]),
        host_end=numbers(job_steps["host_end_ns"]),
        first=numbers(job_steps["first_ns"]),
        is_partial=job_steps["is_partial"].to_numpy(),
    )


def _build_capture_steps(device: Int64s, ops: _Computing) -> _StepBounds:
    """Build one step of the whole capture for each of the devices."""
    device = device[np.isin(device, ops.device[ops.is_kernel])]
    never = np.full(len(device), NEVER)
    return _StepBounds(
        device=device,
        source=np.full(len(device), _CAPTURE),
        row=np.full(len(device), -1),
        number=never,
        host_start=never,
        host_end=never,
        first=_find_first_kernels(device, ops),
        is_partial=np.zeros(len(device), dtype=np.bool_),
    )


def _find_first_kernels(device: Int64s, ops: _Computing) -> Int64s:
    """Return the start of the first kernel of each device; every device has one."""
    starts = [ops.start[ops.is_kernel & (ops.device == number)].min() for number in device]
    return np.array(starts, dtype=np.int64)


def _concatenate(*parts: _StepBounds) -> _StepBounds:
    columns = (field.name for field in fields(_StepBounds))
    return _StepBounds(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})


def _select(steps: _StepBounds, rows: Int64s) -> _StepBounds:
    return _StepBounds(**{field.name: getattr(steps, field.name)[rows] for field in fields(_StepBounds)})


def _number_steps(steps: _StepBounds) -> tuple[Bools, Int64s, _StepBounds]:
    """Number the steps of each device: by name if all its steps have distinct numbers, else by counting.

    Returns:
        Mask of the steps numbered by name, the numbers, and the steps by device and first kernel.
    """
    steps = _select(steps, np.lexsort((steps.first, steps.device)))
    is_numbered = np.zeros(len(steps.device), dtype=np.bool_)
    number = steps.number.copy()
    for device in np.unique(steps.device):
        own = steps.device == device
        is_numbered[own] = (number[own] != NEVER).all() and len(np.unique(number[own])) == own.sum()
        number[own & ~is_numbered] = np.arange(own.sum())[~is_numbered[own]]
    return is_numbered, number, steps


def _find_edges(steps: _StepBounds, ops: _Computing) -> tuple[Int64s, Int64s, Int64s]:
    """Find the start and the end of each step on its device.

    A step starts with its first kernel, or with an earlier copy or set that was launched inside its range. It ends at
    the start of the next step; the last step ends with the last operation launched before the end of its range.

    Args:
        steps: Steps, by device and first kernel.
        ops: Computing operations.

    Returns:
        Start and end by device and start, and the order of `steps` by device and start.
    """
    others = np.flatnonzero(~ops.is_kernel)
    at = find_first(ops.device[others], ops.start[others], steps.device, steps.first)
    host_start = np.append(steps.host_start, NEVER)[at]
    is_inside = (host_start != NEVER) & (ops.launch[others] >= host_start)
    start = steps.first.copy()
    np.minimum.at(start, at[is_inside], ops.start[others[is_inside]])
    order = np.lexsort((start, steps.device))
    start, device = start[order], steps.device[order]

    end = np.append(start[1:], NEVER)[: len(start)]
    for last in np.flatnonzero(np.append(device[1:] != device[:-1], True)[: len(device)]).tolist():
        step = order[last]
        counts = ops.device == device[last]
        if steps.source[step] == _CAPTURE:
            counts &= ops.is_kernel
        if steps.source[step] == _RANGE and steps.host_end[step] != NEVER:
            counts &= ops.launch <= steps.host_end[step]
        end[last] = ops.end[counts].max(initial=start[last])
    return start, end, order


def _mark_cut_steps(steps: pl.DataFrame, device: Int64s, jobs: pl.DataFrame) -> Bools:
    """Return the mask of steps with an open job, and of first and last steps with fewer jobs than usual.

    Args:
        steps: As `STEPS`.
        device: Index of each step's device.
        jobs: `JOBS`.
    """
    row = np.where(is_among(jobs["kind"], ("data", "other")), -1, find_step_rows(jobs, steps))
    counted = row[(row >= 0) & ~jobs["device_id"].is_null().to_numpy()]
    count = np.bincount(counted, minlength=len(steps))
    # an open job cuts its step on all devices of the process: it may not have launched work on each one yet
    same = pack(numbers(steps["process_key"]), numbers(steps["step"]))
    is_cut = np.isin(same, same[row[(row >= 0) & jobs["is_open"].to_numpy()]])
    for number in np.unique(device):
        own = np.flatnonzero(device == number)
        edges = own[[0, -1]]
        is_cut[edges] |= count[edges] < np.median(count[own])
    return is_cut
