"""Times of ranges, operators of a framework, and phases of training, on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.aggregates.operator_items import sum_operators
from nsys_pp.aggregates.phase_items import sum_phases
from nsys_pp.aggregates.range_items import MOST_NAMES, sum_ranges
from nsys_pp.frames.aggregates import ITEM_AGGREGATES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import KERNEL_KINDS


def sum_items(
    *,
    ranges: pl.DataFrame,
    projections: pl.DataFrame,
    operators: pl.DataFrame,
    jobs: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    steps: pl.DataFrame,
    kinds: Sequence[str] = KERNEL_KINDS,
    most_names: int = MOST_NAMES,
) -> pl.DataFrame:
    """Add up the times of NVTX ranges, operators and phases, by name.

    Ranges, jobs and operators are in the step in which they start on the CPU, in all measures; operations on a
    GPU are in the step in which they start on their device. Items of one kind may lie inside each other (ranges
    do), and all three kinds overlap: times of different rows must not be added up.

    Args:
        ranges: `RANGES`.
        projections: `PROJECTIONS`, one row per range and device.
        operators: `NAMED_OPERATORS`.
        jobs: `JOBS`.
        gpu_ops: `GPU_OPS`, in order of op_id.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.
        steps: `STEPS`.
        kinds: Kinds of operation that count in `projections`, `jobs` and steps.
        most_names: Limit of distinct names of ranges.

    Returns:
        `ITEM_AGGREGATES`. Empty in, empty out.
    """
    items = [
        sum_ranges(ranges, projections, steps, most_names=most_names),
        sum_operators(
            ranges, operators, gpu_ops=gpu_ops, api_calls=api_calls, launches=launches, steps=steps
        ),
        sum_phases(jobs, gpu_ops, steps, kinds=kinds),
    ]
    return conform(pl.concat(items), ITEM_AGGREGATES)
