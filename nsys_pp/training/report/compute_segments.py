"""Compute segments of a report: kernels joined over short pauses."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import NEVER, as_numbers, list_distinct, numbers
from nsys_pp.arrays.segments import expand_windows, running_maximum
from nsys_pp.arrays.series import build_column
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import COMPUTE_SEGMENTS, PAUSE_NS
from nsys_pp.training.report.devices import number_devices, repeat_devices
from nsys_pp.training.report.launched_ops import LaunchedOps


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
    return _join_ops(*_cut_at_steps(ops, steps))


def build_compute_segments(segments: Segments, devices: pl.DataFrame) -> pl.DataFrame:
    """Build `COMPUTE_SEGMENTS`, by process_key, device_id, start_ns.

    Args:
        segments: Compute segments (`find_segments`).
        devices: Devices of the operations.
    """
    columns = [
        *repeat_devices(devices, segments.group),
        as_numbers("step", segments.step),
        *(build_column(f"{name}_ns", getattr(segments, name)) for name in ("start", "end")),
        *(build_column(name, getattr(segments, name)) for name in ("compute_ns", "op_count")),
    ]
    return conform(build_frame(columns), COMPUTE_SEGMENTS)


def _cut_at_steps(ops: LaunchedOps, steps: pl.DataFrame) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cut computing operations where a step of their device begins or ends.

    Returns:
        Group, start, end and step (`NEVER`: none) of each part, by group and start.
    """
    step_group = number_devices(steps, ops.devices)
    step_start, step_end, step_number = (numbers(steps[name]) for name in ("start_ns", "end_ns", "step"))
    start, end = ops.start, ops.end
    parts = []
    for device in range(len(ops.devices)):
        computes = np.flatnonzero(ops.is_compute & (ops.device == device))
        computes = computes[np.argsort(start[computes], kind="stable")]
        own = np.flatnonzero(step_group == device)
        own = own[np.argsort(step_start[own], kind="stable")]
        edges = list_distinct(np.concatenate([step_start[own], step_end[own]]))
        # an operation that contains edges[first:last] is cut into last - first + 1 parts
        first, last = (
            np.searchsorted(edges, start[computes], side="right"),
            np.searchsorted(edges, end[computes]),
        )
        last = np.maximum(first, last)
        op = np.repeat(computes, last - first + 1)
        edge = expand_windows(first, last + 1)  # the part ends at this edge, or with its operation
        bounded = np.concatenate([[NEVER], edges, [-NEVER]])
        part_start = np.maximum(bounded[edge], start[op])
        at = np.searchsorted(step_start[own], bounded[edge], side="right") - 1  # the last step started
        is_in = (at >= 0) & (bounded[edge] < np.append(step_end[own], NEVER)[at])
        step = np.where(is_in, np.append(step_number[own], NEVER)[at], NEVER)
        order = np.argsort(part_start, kind="stable")
        device_parts = (
            np.full_like(op, device),
            part_start,
            np.minimum(bounded[edge + 1], end[op]),
            step,
        )
        parts.append([column[order] for column in device_parts])
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty, empty
    group, start, end, step = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return group, start, end, step


def _join_ops(group: Int64s, start: Int64s, end: Int64s, step: Int64s) -> Segments:
    """Join operations, sorted by group and start, into segments."""
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
