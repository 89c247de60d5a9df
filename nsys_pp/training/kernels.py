"""Kernels of one report: sums by name, step and kind of job, and the segments in which a device computes."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import (
    NEVER,
    as_numbers,
    gather,
    index_rows,
    is_among,
    keep_rows,
    list_distinct,
    numbers,
    pick,
)
from nsys_pp.arrays.intervals import split_at
from nsys_pp.arrays.search import number_rows, order_by_number, running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import build_frame, conform
from nsys_pp.frames.report import KERNEL_KINDS, OP_DETAILS, OpDetails
from nsys_pp.frames.training import COMPUTE_SEGMENTS, JOB_KIND, KERNEL_AGGREGATES, PAUSE_NS
from nsys_pp.training.jobs import find_step_rows
from nsys_pp.training.launched import DEVICE, LaunchedOps, number_devices, repeat_devices


def sum_kernels(
    gpu_ops: pl.DataFrame,
    steps: pl.DataFrame,
    *,
    details: OpDetails | None = None,
    job_kind: pl.Series | None = None,
) -> pl.DataFrame:
    """Sum kernels and CUDA graphs by name and job; a kernel is in the step of its start.

    Args:
        gpu_ops: `GPU_OPS`, any order.
        steps: `STEPS` of the same report, any order; the steps of a device do not overlap.
        details: Of these operations, with their demangled names; None, or empty: all have the short one
            alone.
        job_kind: Kind of the job of each operation, null without one; None: none has one.

    Returns:
        `KERNEL_AGGREGATES`, by process, device, step (null outside all steps), name and job. Times are whole
        durations, also of concurrent kernels. Empty without kernels.
    """
    # one small number, and a faster key than the columns of steps
    row = find_step_rows(gpu_ops[[*DEVICE, "start_ns"]], steps)
    is_kernel = is_among(gpu_ops["kind"], KERNEL_KINDS)
    if job_kind is None:
        job_kind = pl.Series("job_kind", [None], JOB_KIND).new_from_index(0, len(gpu_ops))
    keys = gpu_ops[["kind", *DEVICE, "name", "is_communication"]].hstack(
        [pl.Series("row", row), job_kind.alias("job_kind")]
    )
    keys = keep_rows(keys, is_kernel)
    full_names, detail = OP_DETAILS.to_frame()["full_name"], np.full(len(keys), -1)
    if details is not None and len(details.row):
        full_names = details.distinct["full_name"]
        detail = details.row[gpu_ops["op_id"].to_numpy()[is_kernel]].astype(np.int64)
    code = pick(numbers(full_names, null=-1), detail, -1)  # equal names have one code
    first, number = number_rows([*keys.get_columns(), pl.Series("", code)])
    order, before = order_by_number(number.astype(np.int64), len(first))
    start, end = (gpu_ops[name].to_numpy()[is_kernel] for name in ("start_ns", "end_ns"))
    duration = (end - start)[order]
    sums = index_rows(keys, first).hstack(
        [
            gather(full_names, detail[first]),
            pl.Series("count", np.diff(before)),
            *(
                pl.Series(name, reduce.reduceat(duration, before[:-1]))
                for name, reduce in (("total_ns", np.add), ("min_ns", np.minimum), ("max_ns", np.maximum))
            ),
        ]
    )
    step = np.append(numbers(steps["step"]), NEVER)[sums["row"].to_numpy()]
    texts = [
        sums[name].cast(pl.String).alias(text)
        for name, text in (("name", "text"), ("full_name", "full_text"))
    ]
    sums = sums.hstack([as_numbers("step", step), *texts])
    by = [*DEVICE, "step", "text", "is_communication", "full_text", "job_kind", "kind"]
    return conform(sums.sort(by, nulls_last=True), KERNEL_AGGREGATES)


class Segments(Struct, frozen=True, kw_only=True):
    """Compute segments, by group (index of the device) and start."""

    group: Int64s
    step: Int64s  # `NEVER` outside all steps
    start: Int64s
    end: Int64s
    previous_end: Int64s  # of the device; `NEVER` for the first segment
    compute_ns: Int64s
    op_count: Int64s


def find_segments(ops: LaunchedOps, steps: pl.DataFrame) -> Segments:
    """Join kernels into compute segments, over gaps of at most `PAUSE_NS`; steps cut them.

    Args:
        ops: Operations of the report.
        steps: `STEPS`.

    Returns:
        Kernels and graphs that are not communication, joined and cut. Empty in, empty out.
    """
    group, start, end, step = _cut_at_steps(ops, steps)
    latest_end = running_maximum(group, end)
    previous_end = np.full(len(group), NEVER)
    previous_end[1:] = np.where(group[1:] == group[:-1], latest_end[:-1], NEVER)
    is_first = start - PAUSE_NS > previous_end
    is_first[:1] = True  # also where its start is near `NEVER`
    is_first[1:] |= (step[1:] != step[:-1]) | (group[1:] != group[:-1])
    at = np.flatnonzero(is_first)
    covered = np.maximum(end - np.maximum(start, previous_end), 0)
    return Segments(
        group=group[at],
        step=step[at],
        start=start[at],
        end=np.maximum.reduceat(end, at) if len(at) else end,
        previous_end=previous_end[at],
        compute_ns=np.add.reduceat(covered, at) if len(at) else covered,
        op_count=np.diff(np.append(at, len(group))),
    )


def build_compute_segments(segments: Segments, devices: pl.DataFrame) -> pl.DataFrame:
    """Build `COMPUTE_SEGMENTS`, by process_key, device_id, start_ns.

    Args:
        segments: Compute segments (`find_segments`).
        devices: Devices of the operations.
    """
    return build_frame(
        [
            *repeat_devices(devices, segments.group),
            as_numbers("step", segments.step),
            *(pl.Series(f"{name}_ns", getattr(segments, name)) for name in ("start", "end")),
            *(pl.Series(name, getattr(segments, name)) for name in ("compute_ns", "op_count")),
        ]
    ).pipe(conform, COMPUTE_SEGMENTS)


def _cut_at_steps(ops: LaunchedOps, steps: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cut computing operations where a step of their device begins or ends.

    Returns:
        Group, start, end and step (`NEVER`: none) of each part, by group and start.
    """
    step_group = number_devices(steps, ops.devices)
    step_start, step_end, step_number = (numbers(steps[name]) for name in ("start_ns", "end_ns", "step"))
    parts = [[np.zeros(0, dtype=np.int64)] * 4]  # of no device
    for device in range(len(ops.devices)):
        computes = ops.list_by_start(ops.is_compute & (ops.device == device))
        own = np.flatnonzero(step_group == device)
        own = own[np.argsort(step_start[own], kind="stable")]
        edges = list_distinct(np.concatenate([step_start[own], step_end[own]]))
        _, part_start, part_end = split_at(ops.start[computes], ops.end[computes], edges)
        at = np.searchsorted(step_start[own], part_start, side="right") - 1  # the last step started
        is_in = (at >= 0) & (part_start < np.append(step_end[own], NEVER)[at])
        step = np.where(is_in, np.append(step_number[own], NEVER)[at], NEVER)
        order = np.argsort(part_start, kind="stable")
        parts.append([column[order] for column in (np.full_like(step, device), part_start, part_end, step)])
    group, start, end, step = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return group, start, end, step
