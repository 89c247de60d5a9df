"""Steps of one report on each device: by ranges, jobs or repetition, else the whole capture.

A step begins when the host begins it, unless the device is still busy with operations launched before, and
at the latest with its first kernel. It ends where the next one begins, or with its last operation.

Where nothing names steps, they are the iterations that the launches clearly repeat. An iteration runs the
same kernels as often as the one before. So a launch that occurs once per iteration, the anchor, cuts the
launches into segments in which nearly every name occurs equally often:

launches   [ embed layer layer loss layer' layer' update embed layer layer loss layer' layer' update ...
embed      |--------------------------------------------|----------------------------------------    constant:
all layer            |-----|-------------------------------------|-----|-----------------------------
constant: none

Layers and micro-batches repeat, too, and a wrong step is worse than none. So an optimizer has to end each
iteration, or the host copies results or launches a graph in each, and the iterations hold most of the
device's work.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    are_among,
    as_numbers,
    find_distinct,
    gather,
    has_value,
    is_among,
    join_rows,
    keep_rows,
    list_distinct,
    numbers,
    pack,
    select_rows,
)
from nsys_pp.arrays.launch_calls import find_launch_calls, gather_calls
from nsys_pp.arrays.names import is_named
from nsys_pp.arrays.search import find_first, find_last, find_rows, running_maximum, sort_rows
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_frame, build_schema, conform
from nsys_pp.frames.report import GRAPH_LAUNCH, KERNEL_LAUNCH, WAITING_CALL
from nsys_pp.frames.training import COMPUTE_KINDS, STEP_SOURCE, STEPS
from nsys_pp.training.jobs import find_step_rows
from nsys_pp.training.launched import (
    DEVICE,
    LATE_NS,
    LaunchedOps,
    find_device_numbers,
    number_devices,
    repeat_devices,
)

_FORWARDS = ("forward", "forward_backward")
_BETWEEN_STEPS = ("receive", "data", "other")  # kinds of jobs that run before the first forward of a step
_JOB_STEPS = build_schema(
    {  # one row per step and device
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "first_ns": pl.Int64,  # start of its first kernel that is not communication
        "host_start_ns": pl.Int64,  # on the CPU
        "host_end_ns": pl.Int64,
        "is_partial": pl.Boolean,  # the capture began inside it
    },
    name="_JOB_STEPS",
)


def find_job_steps(computed_jobs: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the steps of devices without step ranges.

    Args:
        computed_jobs: `JOBS` with compute kernels, on devices without step ranges.
        jobs: All `JOBS`.

    Returns:
        `_JOB_STEPS`, in no order; no rows for devices with a single step.
    """
    first_forwards = _find_first_forwards(computed_jobs)
    before = (
        jobs.filter(~pl.col("kind").is_in(_BETWEEN_STEPS))
        .sort("process_key", "host_start_ns")
        .select(
            "process_key",
            "host_start_ns",
            previous_end_ns=pl.col("host_end_ns").cum_max().over("process_key"),
        )
        .sort("host_start_ns")
    )
    following_steps = first_forwards.sort("host_start_ns").join_asof(
        before, on="host_start_ns", by="process_key", allow_exact_matches=False, check_sortedness=False
    )
    later = following_steps.select(
        *DEVICE,
        first_ns="compute_start_ns",
        host_start_ns=pl.min_horizontal("previous_end_ns", "host_start_ns"),
    )
    first = (
        computed_jobs.join(first_forwards, on=DEVICE, how="semi")
        .group_by(DEVICE)
        .agg(pl.col("compute_start_ns").min())
    )
    host = jobs.group_by("process_key").agg(
        pl.col("host_start_ns").min(),
        last_ns=pl.col("host_end_ns").max(),
        has_receives=pl.col("kind").is_in(("receive", "send_receive")).any(),
    )
    earliest = first.join(host, on="process_key").select(
        *DEVICE, first_ns="compute_start_ns", host_start_ns="host_start_ns"
    )
    return (
        pl.concat([earliest, later])
        .sort(*DEVICE, "host_start_ns")
        .join(host.select("process_key", "last_ns", "has_receives"), on="process_key", maintain_order="left")
        .with_columns(
            host_end_ns=pl.col("host_start_ns").shift(-1).over(DEVICE).fill_null(pl.col("last_ns")),
            is_partial=pl.col("host_start_ns").shift().over(DEVICE).is_null() & ~pl.col("has_receives"),
        )
        .pipe(conform, _JOB_STEPS)
    )


def _find_first_forwards(computed_jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the first forward of every step except the first step.

    The micro-batches of the first chunk restart at it; where forwards have no micro-batch, it follows an
    optimizer.
    """
    outer = computed_jobs.filter(pl.col("kind").is_in(_FORWARDS)).select("process_key", outer_id="range_id")
    order = (
        computed_jobs.filter(pl.col("kind").is_in([*_FORWARDS, "optimizer"]))
        .join(outer, on=["process_key", "outer_id"], how="anti")
        .sort(*DEVICE, "host_start_ns")
        .with_columns(part=pl.coalesce("virtual_stage", "chunk", 0), is_forward=pl.col("kind") != "optimizer")
    )
    is_counted = (pl.col("micro_batch").is_not_null() | ~pl.col("is_forward")).all().over(DEVICE)
    starts = order.filter(is_counted, "is_forward").filter(
        pl.col("part") == pl.col("part").min().over(DEVICE)
    )
    restarts = starts.filter(pl.col("micro_batch") <= pl.col("micro_batch").shift().over(DEVICE))
    after_optimizer = order.filter(~is_counted).filter(
        "is_forward", ~pl.col("is_forward").shift().over(DEVICE)
    )
    return pl.concat([restarts, after_optimizer])


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

    @property
    def has_end(self) -> Bools:
        """Mask of steps with an end on the host: operations launched after it are of no step."""
        return np.asarray(((self.row >= 0) | (self.source == _REPETITION)) & (self.host_end != NEVER))

    @property
    def is_capture(self) -> Bools:
        """Mask of steps that are the whole capture."""
        return np.asarray(self.source == _CAPTURE)


def _find_edges(steps: _StepBounds, ops: LaunchedOps) -> tuple[Int64s, Int64s, Bools]:
    """Find the start and the end of each step on its device.

    Returns:
        Starts; ends; mask of the steps whose first operation was delayed by some that were launched before
        the capture.
    """
    first = _find_first(steps, ops)
    own_end, ended, is_followed = _find_last_ends(steps, ops, first)
    device = steps.device
    follows = np.append(False, device[1:] == device[:-1])[: len(device)]
    following_number = np.append(steps.number[1:], NEVER)[: len(device)]
    is_followed &= (following_number == NEVER) | (following_number == steps.number + 1)
    # the host's times are of another clock where that of a device is off
    is_off = ops.is_off[device]
    begin = np.where((steps.host_start == NEVER) | is_off, first, steps.host_start)
    start = np.minimum(np.where(follows, np.maximum(begin, np.roll(ended, 1)), begin), first)
    # and do not show what of its first step was not recorded
    is_cut = ~follows & (is_off | ((start < first) & _is_delayed(first, device, ops)))
    start = running_maximum(device, np.where(is_cut, first, start))

    is_open = steps.is_partial & (steps.row >= 0)  # the end on the host is that of the capture
    own_end = np.maximum(own_end, np.where(is_open | steps.is_capture | is_off, NEVER, steps.host_end))
    is_last = np.append(~follows[1:], True)[: len(device)]
    following = np.where(is_last, -NEVER, np.roll(start, -1))
    end = np.where(is_followed & ~is_last, following, np.minimum(own_end, following))
    return start, np.maximum(end, start), is_cut


def _find_first(steps: _StepBounds, ops: LaunchedOps) -> Int64s:
    """Find the start of the first operation of each step.

    It is a kernel, or a copy or set launched in the step before it.
    """
    others = ops.list_by_start(~(ops.is_main_kernel | ops.is_communication | ops.is_aside))
    at = find_first(ops.device[others], ops.start[others], steps.device, steps.first)
    begin = np.append(steps.host_start, NEVER)[at]
    is_inside = (begin != NEVER) & (ops.issue[others] >= begin)
    first = steps.first.copy()
    np.minimum.at(first, at[is_inside], ops.start[others[is_inside]])
    return first


def _find_last_ends(steps: _StepBounds, ops: LaunchedOps, first: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """Find the last operation of each step that ends before the first operation of the next step.

    Operations are of the step in whose range they are launched; those launched after its range are of none.

    Returns:
        End of the last operation of each step; end of the last operation launched until the next step; mask
        of steps after which nothing is launched until the next step.
    """
    own_end, end = steps.first.copy(), steps.first.copy()
    is_followed = np.ones(len(end), dtype=np.bool_)
    has_end, begin_of = steps.has_end, np.where(steps.host_start == NEVER, first, steps.host_start)
    for device in list_distinct(steps.device).tolist():
        own, mine = np.flatnonzero(steps.device == device), np.flatnonzero(ops.device == device)
        issue, ended = ops.issue[mine], ops.end[mine]
        begin = np.maximum.accumulate(begin_of[own])
        at = np.maximum(np.searchsorted(begin, issue, side="right") - 1, 0)
        is_inside = ~has_end[own][at] | (issue <= steps.host_end[own][at])
        is_followed[own[at[~is_inside]]] = False
        counts = ~ops.is_aside[mine] | steps.is_capture[own[-1]]
        # an operation that outlasts the first one of the next step counts before the first step that it does
        # not outlast
        passed = np.searchsorted(first[own], ended) - 1
        np.maximum.at(end, own[np.maximum(at, passed)[counts]], ended[counts])
        counts &= is_inside & (passed <= at)
        np.maximum.at(own_end, own[at[counts]], ended[counts])
    return own_end, end, is_followed


def _is_delayed(first: Int64s, device: Int64s, ops: LaunchedOps) -> Bools:
    """Return the mask of first operations that start late after their launch.

    Operations right after a recorded one do not count.
    """
    order = ops.list_by_start(~(ops.is_communication | ops.is_aside))
    if not len(order):
        return np.zeros(len(first), dtype=np.bool_)
    at = order[find_first(device, first, ops.device[order], ops.start[order])]
    is_late = first - ops.issued[at] > LATE_NS
    for number in list_distinct(device[is_late]).tolist():
        own = np.flatnonzero(is_late & (device == number))
        ended = np.sort(ops.end[ops.device == number])
        before = np.searchsorted(ended, first[own] - LATE_NS)
        until = np.searchsorted(ended, first[own], side="right")
        is_late[own] = before == until
    return is_late


def _mark_unfinished_steps(steps: _StepBounds, process: Int64s, ops: LaunchedOps) -> Bools:
    """Mark the steps at the end of each device's capture that launched kernels without a record.

    Earlier steps may launch kernels that never run, into a graph that is captured; those are not marked
    unless all later steps are. Of a process with several devices, it is not known where such a kernel would
    have run: it counts for all. `process`: of each step.
    """
    # copies and sets of no bytes have no operation either
    is_unfinished = ops.calls.match(f"{KERNEL_LAUNCH}|{GRAPH_LAUNCH}")
    is_unfinished[ops.launches["call_row"].to_numpy()] = False
    rows = np.flatnonzero(is_unfinished)
    mark = np.zeros(len(process), dtype=np.bool_)
    of_call, called = (ops.api_calls[name].to_numpy()[rows] for name in ("process_key", "start_ns"))
    for number in list_distinct(steps.device).tolist() if len(rows) else ():
        own = np.flatnonzero(steps.device == number)
        mine = called[of_call == process[own[0]]]
        at = np.searchsorted(np.maximum.accumulate(steps.host_start[own]), mine, side="right") - 1
        mine, at = mine[at >= 0], at[at >= 0]
        is_inside = ~steps.has_end[own[at]] | (mine <= steps.host_end[own[at]])
        has_any = np.bincount(at[is_inside], minlength=len(own)) > 0
        mark[own] = np.logical_and.accumulate(has_any[::-1])[::-1]
    return mark


def find_steps(
    step_ranges: pl.DataFrame,
    *,
    compute: pl.DataFrame,
    jobs: pl.DataFrame,
    ops: LaunchedOps,
) -> pl.DataFrame:
    """Find the steps of every device: by ranges, else by jobs, else by repetition.

    Without any, the whole capture is one step.

    By jobs, a step begins where the micro-batches of the first chunk restart, or, where forwards have no
    numbers, with the first forward after an optimizer.

    Args:
        step_ranges: `NAMED_STEPS`.
        compute: `PROJECTIONS` of these ranges onto kernels that are not communication.
        jobs: `JOBS`.
        ops: Operations of the report.

    Returns:
        `STEPS`. Devices without compute kernels have no steps, unless no device has any. A step is partial if

        * its range, or a job in it, is open at the end of the capture;
        * it has no range, but jobs before the first range;
        * it is the first step by jobs, and no job receives, so that the start of its first wait is unknown;
        * it is the first step, and operations that are not recorded, as those before the capture, delay its
          start;
        * it has no range, is the first or the last step, and has fewer jobs than the median step;
        * it and all later steps launched kernels that are not recorded: the capture ended before these.
    """
    devices = ops.devices
    on_device = number_devices(jobs, devices)
    has_computed = numbers(jobs["compute_start_ns"]) != NEVER
    by_range = _build_range_steps(step_ranges, compute, devices, ops)
    is_compute, is_outside = are_among(jobs["kind"], COMPUTE_KINDS, ("data", "other"))
    is_compute_job = has_computed & is_compute
    before = _build_steps_before_ranges(
        by_range, on_device[is_compute_job], numbers(jobs["host_start_ns"])[is_compute_job], ops
    )
    has_ranges = np.zeros(len(devices) + 1, dtype=np.bool_)  # the last: of jobs without a device
    has_ranges[by_range.device] = True
    is_without_range = has_computed & ~has_ranges[on_device]
    by_jobs = [_build_job_steps(jobs, is_without_range, devices)] if is_without_range.any() else []
    steps = join_rows(before, by_range, *by_jobs)
    rest = np.setdiff1d(np.arange(len(devices)), steps.device)
    unnamed = np.setdiff1d(rest, on_device[is_compute_job])
    reasons: dict[int, str] = {}
    for number in np.intersect1d(unnamed, ops.device[ops.is_main_kernel]).tolist():
        own = keep_rows(ops.gpu_ops, ops.device == number)
        found = find_repeated_steps(own, api_calls=ops.api_calls, launches=ops.launches)
        reasons[number] = found.reason
        steps = join_rows(steps, _build_repeated_steps(number, found, ops))
    steps = join_rows(steps, _build_capture_steps(np.setdiff1d(rest, steps.device), ops))

    is_numbered, number, steps = _number_steps(steps)
    start, end, is_cut = _find_edges(steps, ops)
    columns = [
        *repeat_devices(devices, steps.device),
        as_numbers("step", number),
        as_numbers("host_start_ns", steps.host_start),
        as_numbers("host_end_ns", steps.host_end),
        gather(step_ranges["name"], steps.row).alias("name"),
        gather(_SOURCES, steps.source).alias("source"),
        pl.Series("reason", [reasons.get(device) for device in steps.device.tolist()], dtype=pl.String),
        pl.Series("is_numbered", is_numbered),
        pl.Series("start_ns", start),
        pl.Series("end_ns", end),
        *(
            pl.Series(name, limit[steps.device])
            for name, limit in zip(("first_op_ns", "last_op_ns"), ops.limits, strict=True)
        ),
    ]
    frame = build_frame(columns)
    is_partial = steps.is_partial | is_cut
    is_partial |= _mark_cut_steps(frame, steps.device, jobs, ~is_outside, steps.row >= 0)
    process = devices["process_key"].to_numpy()[steps.device]
    is_partial |= ~steps.is_capture & _mark_unfinished_steps(steps, process, ops)
    return conform(frame.hstack([pl.Series("is_partial", is_partial)]), STEPS)


def _build_bounds(device: Int64s, source: int, first: Int64s, **known: Int64s | Bools) -> _StepBounds:
    """Build steps of one source.

    Columns that are not known are null, and steps without a mark are not partial.
    """
    absent = {"row": -1, "number": NEVER, "host_start": NEVER, "host_end": NEVER, "is_partial": False}
    columns = {name: known.get(name, np.full(len(device), value)) for name, value in absent.items()}
    return _StepBounds(device=device, source=np.full(len(device), source), first=first, **columns)


def _build_range_steps(
    step_ranges: pl.DataFrame, compute: pl.DataFrame, devices: pl.DataFrame, ops: LaunchedOps
) -> _StepBounds:
    # of repeated ranges only the first is kept
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
    return _build_bounds(
        device[kept],
        _RANGE,
        _find_first_launched(device[kept], start[kept], end[kept], ops, default=first),
        row=row[kept],
        number=number[kept],
        host_start=start[kept],
        host_end=end[kept],
        is_partial=step_ranges["is_open"].to_numpy()[row[kept]],
    )


def _build_steps_before_ranges(
    by_range: _StepBounds, job_device: Int64s, job_start: Int64s, ops: LaunchedOps
) -> _StepBounds:
    """Build a step before the first range of each device that has jobs before this range."""
    device, at = np.unique(by_range.device, return_index=True)
    first_jobs = [job_start[job_device == number].min(initial=-NEVER) for number in device]
    is_cut = np.array(first_jobs, dtype=np.int64) < by_range.host_start[at]
    device, number = device[is_cut], by_range.number[at[is_cut]]
    return _build_bounds(
        device,
        _RANGE,
        ops.limits[0][device],
        number=np.where(number == NEVER, NEVER, number - 1),
        is_partial=np.ones(len(device), dtype=np.bool_),
    )


def _build_job_steps(jobs: pl.DataFrame, is_without_range: Bools, devices: pl.DataFrame) -> _StepBounds:
    job_steps = find_job_steps(jobs.filter(pl.Series(is_without_range)), jobs)
    return _build_bounds(
        number_devices(job_steps, devices),
        _JOBS,
        numbers(job_steps["first_ns"]),
        host_start=numbers(job_steps["host_start_ns"]),
        host_end=numbers(job_steps["host_end_ns"]),
        is_partial=job_steps["is_partial"].to_numpy(),
    )


def _build_repeated_steps(device: int, repeats: RepeatedSteps, ops: LaunchedOps) -> _StepBounds:
    """Build the steps of a device without names from the repetition of its launches."""
    devices = np.full(len(repeats.first), device)
    begin, end = repeats.host_start, repeats.host_end
    return _build_bounds(
        devices,
        _REPETITION,
        _find_first_launched(devices, begin, end, ops, default=repeats.first),
        host_start=begin,
        host_end=end,
        is_partial=repeats.is_partial,
    )


def _build_capture_steps(device: Int64s, ops: LaunchedOps) -> _StepBounds:
    """Build one step of the whole capture for each of the devices.

    Devices without compute kernels have none, unless no device has any.
    """
    has_kernels = np.unique(ops.device[ops.is_main_kernel])
    device = np.intersect1d(device, has_kernels) if len(has_kernels) else device
    return _build_bounds(device, _CAPTURE, ops.limits[0][device])


def _find_first_launched(
    device: Int64s, begin: Int64s, end: Int64s, ops: LaunchedOps, *, default: Int64s
) -> Int64s:
    """Find the start of the first kernel of a main stream launched in each span of a device.

    Spans are by device and begin.

    The span may contain a kernel aside that starts earlier, while the main streams are busy with the step
    before.
    """
    rows = np.flatnonzero(ops.is_main_kernel)
    at = find_last(ops.device[rows], ops.issue[rows], device, begin)
    rows, at = rows[at >= 0], at[at >= 0]
    is_inside = ops.issue[rows] <= end[at]
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
    """Return the mask of steps that the capture cuts.

    They have an open job, or are first or last ones without a range, with fewer jobs than usual.

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


_UPDATE = r"(?i)adam|lamb_|adagrad|momentum|sgd|optimizer|multi_tensor|multitensor"
_LEAST = 3  # iterations; fewer do not show what repeats
_CLEAR = (
    0.8  # share of the names that occur equally often in each iteration, and of the iterations that are alike
)
_ALIKE = 0.05  # of an iteration's launches that may differ from the usual ones, as where something is logged
_LEAST_WORK = 0.5  # of the device's time in operations, that iterations hold: most of it
_SAMPLE = 100_000  # launches on which anchors are compared, to bound the time
_MOST_ANCHORS = 48  # of them


class RepeatedSteps(Struct, frozen=True, kw_only=True):
    """Steps of one device, in order; none where a device has no clear iterations."""

    host_start: Int64s  # end of the launch before the first one, or of a later wait for the GPU
    host_end: Int64s  # end of the last launch
    first: Int64s  # start of the first operation
    is_partial: Bools
    reason: str


class Launches(Struct, frozen=True, kw_only=True):
    """Launches of a device, in order of time.

    The operations of one call, as those of a graph, are one launch.
    """

    name: Int64s  # index of the name; CUDA graphs have one name
    launch: Int64s  # start of the call
    launched: Int64s  # end of the call
    start: Int64s  # of the first operation
    busy: Int64s  # time of the operations
    is_update: Bools  # by index of the name: an optimizer runs it
    is_loop: Bools  # by index of the name: a copy to the host, or a graph


class _Cut(Struct, frozen=True, kw_only=True):
    # launches cut at the occurrences of an anchor
    begin: Int64s  # positions of the anchor
    usual: Int64s  # by index of the name: launches per segment, the median
    is_constant: Bools  # by index of the name: most segments have the usual count
    is_alike: Bools  # by segment: it has nearly the usual counts
    score: float  # share of names that are constant

    @property
    def size(self) -> int:
        """Launches of the usual segment."""
        return int(self.usual.sum())


def find_repeated_steps(
    gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> RepeatedSteps:
    """Find the steps of one device from its launches.

    Args:
        gpu_ops: `GPU_OPS` of the device.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.
    """
    order = order_launches(gpu_ops, api_calls=api_calls, launches=launches)
    found = find_iterations(order)
    if isinstance(found, str):
        nothing = np.zeros(0, dtype=np.int64)
        return RepeatedSteps(
            host_start=nothing, host_end=nothing, first=nothing, is_partial=nothing > 0, reason=found
        )
    begin, end, is_whole = found
    is_own = numbers(api_calls["process_key"]) == gpu_ops["process_key"][0]
    calls = keep_rows(api_calls[["name", "end_ns"]], is_own)
    # a wait for the GPU ends an iteration; the host prepares the next one since then, or since the launch
    # before
    waits = np.sort(numbers(calls["end_ns"])[is_named(calls["name"], WAITING_CALL)])
    waited = np.append(waits, NEVER)[np.searchsorted(waits, order.launch[begin], side="right") - 1]
    before = np.where(begin > 0, order.launched[begin - 1], order.launch[0])
    outside = len(order.name) - int((end - begin).sum())
    rest = f"; {outside:,} launches lie outside the steps" if outside else ""
    return RepeatedSteps(
        host_start=np.minimum(np.maximum(before, waited), order.launch[begin]),
        host_end=np.maximum(order.launched[end - 1], order.launch[end - 1]),
        first=order.start[begin],
        is_partial=~is_whole,
        reason=f"{int(np.median((end - begin)[is_whole])):,} launches repeat {is_whole.sum():,} times{rest}",
    )


def order_launches(gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame) -> Launches:
    """Order the launches of the operations of one device; operations without a launch call are left out.

    Without any calls, the order is that of the operations' starts.
    """
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    start, end = numbers(gpu_ops["start_ns"]), numbers(gpu_ops["end_ns"])
    has_calls = bool((call >= 0).any())
    launch, launched = (
        (gather_calls(api_calls[name], call) if has_calls else start) for name in ("start_ns", "end_ns")
    )
    order = sort_rows(launch, start)
    order = order[launch[order] != NEVER]
    is_first = np.append(True, np.diff(call[order]) != 0)[: len(order)] | (not has_calls)
    busy = np.add.reduceat((end - start)[order], np.flatnonzero(is_first)) if len(order) else order
    order = order[is_first]
    is_graph = has_value(gpu_ops["graph_id"]) | is_among(gpu_ops["kind"], ("graph",))
    code = pack(numbers(gpu_ops["kind"]), numbers(gpu_ops["name"], null=-1))
    first, name = find_distinct(np.where(is_graph, code.max(initial=0) + 1, code)[order])
    row = order[first]
    text = gpu_ops["name"][row].cast(pl.String).fill_null("")
    is_kernel = is_among(gpu_ops["kind"][row], ("kernel",))
    return Launches(
        name=name,
        launch=launch[order],
        launched=launched[order],
        start=start[order],
        busy=busy,
        is_update=text.str.contains(_UPDATE).to_numpy() & is_kernel & ~is_graph[row],
        is_loop=(text.str.contains("DtoH").to_numpy() & ~is_kernel) | is_graph[row],
    )


def find_iterations(launches: Launches) -> tuple[Int64s, Int64s, Bools] | str:
    """Find the first launch of each iteration, the position after its last one, and the mask of whole ones.

    Returns:
        The iterations; else the reason why none are clear.
    """
    count = len(launches.name)
    cut = _choose_cut(launches, count=min(count, _SAMPLE))
    if isinstance(cut, str) and count > _SAMPLE:  # three iterations may be longer than the sample
        cut = _choose_cut(launches, count=count, most=4 * count // _SAMPLE)
    if isinstance(cut, str):
        return cut
    begin = _find_begins(launches, cut)
    size, usual = cut.size, cut.usual
    while begin[0] >= size and _count(launches, begin[0] - size, begin[0], usual) <= _ALIKE * size:
        begin = np.append(begin[0] - size, begin)  # a pair of launches lacks the first iteration
    end = np.append(begin[1:], count)
    # launches after an iteration, as of an evaluation, belong to none; a last one may be cut by the capture
    end = np.where(np.abs(end - begin - size) > _ALIKE * size, np.minimum(begin + size, end), end)
    difference = [_count(launches, *bounds, usual) for bounds in zip(begin, end, strict=True)]
    is_whole = np.array(difference) <= 2 * _ALIKE * size
    is_cut = (np.arange(len(begin)) == len(begin) - 1) & (end == count) & (end - begin < size)
    kept = is_whole | is_cut
    if is_whole.sum() < _LEAST:
        return f"launches repeat, but fewer than {_LEAST} iterations are whole"
    until = np.append(0, np.cumsum(launches.busy))
    if (until[end[kept]] - until[begin[kept]]).sum() < _LEAST_WORK * until[-1]:
        return "launches repeat, but they are less than half of the GPU's work"
    return begin[kept], end[kept], is_whole[kept]


def _choose_cut(launches: Launches, *, count: int, most: int | None = None) -> _Cut | str:
    """Choose the cut into iterations among those into segments that are alike.

    Returns the reason where none is clear.
    """
    name = launches.name[:count]
    updates = np.bincount(name, minlength=len(launches.is_update)) * launches.is_update
    cuts = [_cut(name, begin, len(launches.is_update)) for begin in _list_anchors(name, most)]
    clear = [cut for cut in cuts if cut.score >= _CLEAR and cut.is_alike.mean() >= _CLEAR]
    if not clear:
        return "no launch divides the capture into parts that run the same kernels"
    if updates.any():  # each iteration has one; longer segments are several iterations
        clear = [cut for cut in clear if 2 * (updates * cut.is_constant).sum() > updates.sum()]
    shortest = min((cut.size for cut in clear), default=0)
    like = [cut for cut in clear if cut.size <= 1.5 * shortest]
    if not updates.any():
        if len(like) < len(clear):
            return "launches repeat at several lengths, so no length is certain"
        like = [cut for cut in like if (launches.is_loop & cut.is_constant).any()]
    if not like:
        return "launches repeat, but nothing distinguishes iterations from layers"
    return max(like, key=lambda cut: cut.score)


def _list_anchors(name: Int64s, most: int | None) -> list[Int64s]:
    """List the positions of names and pairs of names that may occur once per iteration.

    The most regular ones come first.
    """
    names = int(name.max(initial=-1)) + 1
    grams = _list_grams(name)
    # as many segments as names, at most some times: the names of an iteration occur in it
    grams = [at for at in grams if _LEAST < len(at) <= min(3 * len(name) / names, most or len(name))]
    spread = np.array([np.log(np.diff(at)).std() for at in grams])
    return [grams[row] for row in np.argsort(spread, kind="stable")[:_MOST_ANCHORS]]


def _list_grams(name: Int64s) -> list[Int64s]:
    """List the positions of each name, and of each pair of adjacent names, at its second one."""
    names = int(name.max(initial=-1)) + 1
    pair = find_distinct(name[:-1] * names + name[1:])[1] if len(name) > 1 else name[:0]
    grams = []
    for code, shift in ((name, 0), (pair, 1)):
        order = np.argsort(code, kind="stable")
        grams += np.split(order + shift, np.flatnonzero(np.diff(code[order])) + 1)
    return grams


def _cut(name: Int64s, begin: Int64s, names: int) -> _Cut:
    segment = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    counts = np.bincount(
        segment * names + name[begin[0] : begin[-1]], minlength=(len(begin) - 1) * names
    ).reshape(-1, names)
    usual = np.median(counts, axis=0).astype(np.int64)
    is_constant = (usual >= 1) & ((counts == usual).mean(axis=0) >= _CLEAR)
    size = int(usual.sum())
    around = name[
        max(begin[0] - size, 0) : begin[-1] + size
    ]  # an iteration that the capture cuts counts, too
    return _Cut(
        begin=begin,
        usual=usual,
        is_constant=is_constant,
        is_alike=np.abs(counts - usual).sum(axis=1) <= _ALIKE * size,
        score=is_constant.sum() / max(len(np.unique(around)), 1),
    )


def _find_begins(launches: Launches, cut: _Cut) -> Int64s:
    """Find the launches that begin iterations.

    Of launches that occur once in each, the host pauses longest before these.

    An optimizer ends an iteration, so with one they are those that follow its last launch first.
    """
    size, name = cut.size, launches.name
    grams = [at for at in _list_grams(name) if len(at) > 1]
    regular = np.array([(np.abs(np.diff(at) - size) <= _ALIKE * size).sum() for at in grams])
    extra = np.array([len(at) for at in grams]) - regular
    is_anchor = (regular >= regular.max() - 1) & (extra <= 1 + _ALIKE * regular)
    anchors = [grams[row] for row in np.flatnonzero(is_anchor)]
    pause = np.diff(launches.launch, prepend=launches.launch[:1])
    updates = np.flatnonzero((launches.is_update & cut.is_constant)[name])
    if not len(updates):  # a copy of results, or a graph, ends an iteration
        ends = launches.is_loop[name]
        anchors = [at for at in anchors if ends[at[at > 0] - 1].mean() > 0.5] or anchors
        return max(anchors, key=lambda at: float(np.median(pause[at])), default=cut.begin)
    following = np.append(updates, len(name) + size)
    # an iteration has nearly all its work before its first update; from between two updates there is less to
    # the next
    work = [float(np.median(following[np.searchsorted(updates, at)] - at)) for at in anchors]
    after = [at for at, each in zip(anchors, work, strict=True) if each >= 0.85 * max(work)]
    begin = max(after, key=lambda at: float(np.median(pause[at])), default=cut.begin)
    # where an evaluation comes between, the launch before the first one is another, and the pair is missing
    last = updates[np.append(np.diff(updates) > size / 2, True)]
    ended = np.append(last, len(name) + size)[np.searchsorted(last, begin)]
    expected = last - int(np.median(ended - begin))
    around = np.concatenate([[-size], begin, [len(name) + size]])  # none is near these
    at = np.searchsorted(around, expected)
    is_missing = (expected - around[at - 1] > size / 4) & (around[at] - expected > size / 4) & (expected >= 0)
    return np.sort(np.append(begin, expected[is_missing]))


def _count(launches: Launches, begin: int, end: int, usual: Int64s) -> int:
    return int(np.abs(np.bincount(launches.name[begin:end], minlength=len(usual)) - usual).sum())
