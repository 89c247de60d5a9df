"""Steps of one report on each device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    gather,
    list_distinct,
    mark_categories,
    numbers,
    pack,
)
from nsys_pp.arrays.records import join_rows, select_rows
from nsys_pp.arrays.search import find_last, find_rows
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import COMPUTE_KINDS, JOB_KIND, STEP_SOURCE, STEPS
from nsys_pp.training.repetition import RepeatedSteps, find_repeated_steps
from nsys_pp.training.report.devices import find_device_numbers, number_devices, repeat_devices
from nsys_pp.training.report.job_steps import find_job_steps
from nsys_pp.training.report.jobs import find_step_rows
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.step_edges import StepHosts, StepOps, find_step_edges, list_step_ops
from nsys_pp.training.report.unfinished_steps import mark_unfinished_steps

_IS_COMPUTE = mark_categories(JOB_KIND, COMPUTE_KINDS)
_IS_OUTSIDE = mark_categories(JOB_KIND, ("data", "other"))
_SOURCES = STEP_SOURCE.categories
_RANGE, _JOBS, _REPETITION, _CAPTURE = range(4)  # indices of `_SOURCES`


class _StepBounds(Struct, frozen=True, kw_only=True):
    """Steps of all devices, before their start and end are computed; `NEVER` stands for null."""

    device: Int64s  # index of the device
    source: Int64s  # index of `_SOURCES`
    row: Int64s  # of `NAMED_STEPS`, -1 without a range
    number: Int64s  # in the name of the range
    host_start: Int64s
    host_end: Int64s
    first: Int64s  # start of its first kernel on a main stream
    is_partial: Bools


def find_steps(
    step_ranges: pl.DataFrame,
    *,
    compute: pl.DataFrame,
    jobs: pl.DataFrame,
    launched_ops: LaunchedOps,
) -> pl.DataFrame:
    """Find the steps of every device: by ranges, else by jobs, else by repetition, else one step for the whole capture.

    By jobs, a step begins where the micro-batches of the first chunk restart, or, where forwards have no
    numbers, with the first forward after an optimizer.

    Args:
        step_ranges: `NAMED_STEPS`.
        compute: `PROJECTIONS` of these ranges onto kernels that are not communication.
        jobs: `JOBS`.
        launched_ops: Operations of the report.

    Returns:
        `STEPS`. Devices without compute kernels have no steps, unless no device has any. A step is partial if

        * its range, or a job in it, is open at the end of the capture;
        * it has no range, but jobs before the first range;
        * it is the first step by jobs, and no job receives, so that the start of its first wait is unknown;
        * it is the first step, and operations that are not recorded, as those before the capture, delay its start;
        * it has no range, is the first or the last step, and has fewer jobs than the median step;
        * it and all later steps launched kernels that are not recorded: the capture ended before these.
    """
    devices, ops = launched_ops.devices, list_step_ops(launched_ops)
    on_device = number_devices(jobs, devices)
    has_computed = numbers(jobs["compute_start_ns"]) != NEVER
    by_range = _build_range_steps(step_ranges, compute, devices, ops)
    kind = numbers(jobs["kind"])
    is_compute_job = has_computed & _IS_COMPUTE[kind]
    before = _build_steps_before_ranges(
        by_range, on_device[is_compute_job], numbers(jobs["host_start_ns"])[is_compute_job], ops
    )
    has_ranges = np.zeros(len(devices) + 1, dtype=np.bool_)  # the last: of jobs without a device
    has_ranges[by_range.device] = True
    is_without_range = has_computed & ~has_ranges[on_device]
    by_jobs = [_build_job_steps(jobs, is_without_range, devices)] if is_without_range.any() else []
    steps = join_rows(before, by_range, *by_jobs)
    rest = np.setdiff1d(np.arange(len(devices)), steps.device)
    repetitions: dict[int, RepeatedSteps] = {}
    if len(rest):
        repetitions = _find_repetitions(np.setdiff1d(rest, on_device[is_compute_job]), launched_ops, ops)
        repeated = (_build_repeated_steps(device, own, ops) for device, own in repetitions.items())
        steps = join_rows(steps, *repeated)
        steps = join_rows(steps, _build_capture_steps(np.setdiff1d(rest, steps.device), ops))

    is_numbered, number, steps = _number_steps(steps)
    hosts = StepHosts(
        device=steps.device,
        number=steps.number,
        first=steps.first,
        begin=steps.host_start,
        end=steps.host_end,
        is_open=steps.is_partial & (steps.row >= 0),
        is_capture=steps.source == _CAPTURE,
        has_end=(steps.row >= 0) | (steps.source == _REPETITION),
    )
    edges = find_step_edges(hosts, ops)
    is_partial = steps.is_partial | edges.is_cut
    columns = [
        *repeat_devices(devices, steps.device),
        as_numbers("step", number),
        as_numbers("host_start_ns", steps.host_start),
        as_numbers("host_end_ns", steps.host_end),
        gather(step_ranges["name"], steps.row).alias("name"),
        gather(_SOURCES, steps.source).alias("source"),
        _describe_repetition(repetitions, steps.device),
        build_column("is_numbered", is_numbered),
        build_column("start_ns", edges.start),
        build_column("end_ns", edges.end),
    ]
    frame = build_frame(columns)
    is_partial |= _mark_cut_steps(frame, steps.device, jobs, ~_IS_OUTSIDE[kind], steps.row >= 0)
    process = devices["process_key"].to_numpy()[steps.device]
    is_partial |= ~hosts.is_capture & mark_unfinished_steps(hosts, process, launched_ops)
    return conform(frame.hstack([build_column("is_partial", is_partial)]), STEPS)


def _find_repetitions(device: Int64s, ops: LaunchedOps, step_ops: StepOps) -> dict[int, RepeatedSteps]:
    """Find the repeated steps of devices with kernels."""
    return {
        number: find_repeated_steps(
            ops.list_device_ops(number), api_calls=ops.api_calls, launches=ops.launches
        )
        for number in np.intersect1d(device, ops.device[step_ops.is_kernel]).tolist()
    }


def _build_range_steps(
    step_ranges: pl.DataFrame, compute: pl.DataFrame, devices: pl.DataFrame, ops: StepOps
) -> _StepBounds:
    """Build the steps of step ranges on each device; of repeated ranges only the first is kept."""
    row = find_rows(numbers(step_ranges["range_id"]), numbers(compute["range_id"]))
    at = np.flatnonzero(row >= 0)
    row = row[at]
    process, device_id = numbers(step_ranges["process_key"])[row], numbers(compute["device_id"])[at]
    device = find_device_numbers(process, device_id, devices)
    start, end = (numbers(step_ranges[name])[row] for name in ("start_ns", "end_ns"))
    order = np.lexsort((-end, start, device))
    row, device, start, end = row[order], device[order], start[order], end[order]
    number = numbers(step_ranges["step"])[row]

    follows = np.append(False, device[1:] == device[:-1])[: len(row)]
    until = np.where(follows, np.roll(running_maximum(device, end), 1), NEVER)
    is_same = (number == np.roll(number, 1)) & (number != NEVER) & (start < until)
    kept = ~(follows & ((end <= until) | is_same))
    first = numbers(compute["gpu_start_ns"])[at[order][kept]]
    return _StepBounds(
        device=device[kept],
        source=np.full(kept.sum(), _RANGE),
        row=row[kept],
        number=number[kept],
        host_start=start[kept],
        host_end=end[kept],
        first=_find_first_launched(device[kept], start[kept], end[kept], ops, default=first),
        is_partial=step_ranges["is_open"].to_numpy()[row[kept]],
    )


def _build_steps_before_ranges(
    by_range: _StepBounds, job_device: Int64s, job_start: Int64s, ops: StepOps
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


def _build_repeated_steps(device: int, repeats: RepeatedSteps, ops: StepOps) -> _StepBounds:
    """Build the steps of a device without names from the repetition of its launches."""
    count = len(repeats.first)
    devices, never = np.full(count, device), np.full(count, NEVER)
    begin, end = repeats.host_start, repeats.host_end
    return _StepBounds(
        device=devices,
        source=np.full(count, _REPETITION),
        row=np.full(count, -1),
        number=never,
        host_start=begin,
        host_end=end,
        first=_find_first_launched(devices, begin, end, ops, default=repeats.first),
        is_partial=repeats.is_partial,
    )


def _describe_repetition(repetitions: Mapping[int, RepeatedSteps], device: Int64s) -> pl.Series:
    """List the reason of steps by their device; null for devices whose steps have names."""
    reasons = {number: each.reason for number, each in repetitions.items()}
    return pl.Series("reason", [reasons.get(number) for number in device.tolist()], dtype=pl.String)


def _build_capture_steps(device: Int64s, ops: StepOps) -> _StepBounds:
    """Build one step of the whole capture for each of the devices.

    Devices without compute kernels have none, unless no device has any.
    """
    device = device[np.isin(device, ops.device[_select_capture_ops(ops)])]
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


def _select_capture_ops(ops: StepOps) -> Bools:
    """Return the mask of the kernels; of all operations if there are no kernels."""
    return ops.is_kernel if ops.is_kernel.any() else np.ones_like(ops.is_kernel)


def _find_first_kernels(device: Int64s, ops: StepOps) -> Int64s:
    """Return the start of the first kernel of each device, or of its first operation if no device has kernels."""
    is_first = _select_capture_ops(ops)
    starts = [ops.start[is_first & (ops.device == number)].min() for number in device]
    return np.array(starts, dtype=np.int64)


def _find_first_launched(
    device: Int64s, begin: Int64s, end: Int64s, ops: StepOps, *, default: Int64s
) -> Int64s:
    """Find the start of the first kernel of a main stream launched in each span of a device, by device and begin.

    The span may contain a kernel aside that starts earlier, while the main streams are busy with the step before.
    """
    rows = np.flatnonzero(ops.is_kernel)
    at = find_last(ops.device[rows], ops.launch[rows], device, begin)
    rows, at = rows[at >= 0], at[at >= 0]
    is_inside = ops.launch[rows] <= end[at]
    first = np.full(len(device), -NEVER)
    np.minimum.at(first, at[is_inside], ops.start[rows[is_inside]])
    return np.where(first == -NEVER, default, first)


def _number_steps(steps: _StepBounds) -> tuple[Bools, Int64s, _StepBounds]:
    """Number the steps of each device: by name if all its steps have distinct numbers, else by counting.

    Returns:
        Mask of the steps numbered by name, the numbers, and the steps by device and first kernel.
    """
    steps = select_rows(steps, np.lexsort((steps.first, steps.device)))
    is_numbered = np.zeros(len(steps.device), dtype=np.bool_)
    number = steps.number.copy()
    for device in list_distinct(steps.device):
        own = steps.device == device
        is_numbered[own] = (number[own] != NEVER).all() and len(list_distinct(number[own])) == own.sum()
        number[own & ~is_numbered] = np.arange(own.sum())[~is_numbered[own]]
    return is_numbered, number, steps


def _mark_cut_steps(
    steps: pl.DataFrame, device: Int64s, jobs: pl.DataFrame, counts: Bools, has_range: Bools
) -> Bools:
    """Return the mask of steps with an open job, and of first and last steps without a range that have fewer jobs than usual.

    Args:
        steps: As `STEPS`.
        device: Index of each step's device.
        jobs: `JOBS`.
        counts: Mask of the jobs that count.
        has_range: Mask of steps with a range: the whole range is recorded, and so are all jobs in it.
    """
    row = np.where(counts, find_step_rows(jobs, steps), -1)
    counted = row[(row >= 0) & (numbers(jobs["device_id"]) != NEVER)]
    count = np.bincount(counted, minlength=len(steps))
    # an open job cuts its step on all devices of the process: it may not have launched work on each one yet
    same = pack(numbers(steps["process_key"]), numbers(steps["step"]))
    is_open = jobs["is_open"].to_numpy()
    is_cut = (
        np.isin(same, same[row[(row >= 0) & is_open]]) if is_open.any() else np.zeros(len(same), np.bool_)
    )
    for number in list_distinct(device):
        own = np.flatnonzero(device == number)
        edges = own[[0, -1]]
        is_cut[edges] |= ~has_range[edges] & (count[edges] < np.median(count[own]))
    return is_cut
