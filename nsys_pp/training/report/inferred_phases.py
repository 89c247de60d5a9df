"""Phases of the steps that repetition found: their times on the GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import PHASE_KIND, PHASES, STEP_SOURCE
from nsys_pp.training.report.devices import number_devices
from nsys_pp.training.report.iteration_phases import find_iteration_phases
from nsys_pp.training.report.launch_order import order_operations
from nsys_pp.training.report.launched_ops import LaunchedOps
from nsys_pp.training.report.phase_spans import IterationPhases, Spans

_REPETITION = STEP_SOURCE.categories.to_list().index("repetition")
_DEVICE = ("process_key", "device_id")


def find_inferred_phases(steps: pl.DataFrame, ops: LaunchedOps) -> pl.DataFrame:
    """Find the phases of the steps that repetition found.

    Args:
        steps: `STEPS`.
        ops: Operations of the report.

    Returns:
        `PHASES`. Empty for other steps, and where launches show no phases.
    """
    if not (numbers(steps["source"]) == _REPETITION).any():
        return PHASES.to_frame()
    repeated = steps.filter(source="repetition")
    parts = [
        _find_phases(
            own,
            ops.list_device_ops(int(number_devices(own, ops.devices)[0])),
            api_calls=ops.api_calls,
            launches=ops.launches,
        )
        for own in repeated.partition_by(*_DEVICE, maintain_order=True)
    ]
    return pl.concat([PHASES.to_frame(), *parts])


def _find_phases(
    steps: pl.DataFrame, gpu_ops: pl.DataFrame, *, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> pl.DataFrame:
    """Find the phases of the steps of one device."""
    order, position = order_operations(gpu_ops, api_calls=api_calls, launches=launches)
    begin = np.searchsorted(order.launch, numbers(steps["host_start_ns"]))
    end = np.searchsorted(order.launch, numbers(steps["host_end_ns"]), side="right")
    end = np.minimum(end, np.append(begin[1:], len(order.name)))
    phases = find_iteration_phases(order, begin, end)
    return PHASES.to_frame() if isinstance(phases, str) else _measure(phases, steps, gpu_ops, position)


def _measure(
    phases: IterationPhases, steps: pl.DataFrame, gpu_ops: pl.DataFrame, position: Int64s
) -> pl.DataFrame:
    """Measure the operations of each phase, by the position of their launches (`PHASES`)."""
    spans = phases.spans
    at = np.searchsorted(spans.first, position, side="right") - 1
    ops = np.flatnonzero((at >= 0) & (position < np.append(spans.last, -1)[at]))
    start, end = (numbers(gpu_ops[name])[ops] for name in ("start_ns", "end_ns"))
    order = np.lexsort((start, at[ops]))
    phase, start, end = at[ops][order], start[order], end[order]
    first = np.searchsorted(phase, np.arange(len(spans.first)))  # each has at least the operation of a launch
    until = running_maximum(phase, end)
    is_inside = np.append(False, phase[1:] == phase[:-1])
    covered = np.where(is_inside, np.maximum(start, np.roll(until, 1)), start)
    number, index = _number(spans)
    frame = pl.DataFrame(
        {
            "number": number,
            "kind": PHASE_KIND.categories.gather(spans.kind),
            "index": index,
            "start_ns": start[first],
            "end_ns": np.maximum.reduceat(end, first),
            "busy_ns": np.add.reduceat(np.maximum(end - covered, 0), first),
            "op_count": np.diff(np.append(first, len(phase))),
        }
    )
    own = steps[spans.iteration].select(*_DEVICE, "step")
    return (
        own.hstack(frame)
        .with_columns(confidence=pl.lit(phases.confidence), reason=pl.lit(phases.reason))
        .pipe(conform, PHASES)
    )


def _number(spans: Spans) -> tuple[Int64s, Int64s]:
    """Number the spans of each iteration, and its spans of one kind."""
    frame = pl.DataFrame({"iteration": spans.iteration, "kind": spans.kind}).select(
        number=pl.int_range(pl.len()).over("iteration"),
        index=pl.int_range(pl.len()).over("iteration", "kind"),
    )
    return frame["number"].to_numpy(), frame["index"].to_numpy()
