"""Kernels of one report by name, step and device: what a comparison of runs needs of them."""

from __future__ import annotations

import polars as pl

from nsys_pp.schema import conform
from nsys_pp.training import KERNEL_SUMS

_DEVICE = ["process_key", "device_id"]


def sum_kernels(gpu_ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Sum kernels and CUDA graphs by name; each belongs to the step in which it starts.

    Args:
        gpu_ops: `GPU_OPS`, any order.
        steps: `STEPS` of the same report, any order; the steps of a device do not overlap.

    Returns:
        `KERNEL_SUMS`, by process, device, step (null outside all steps) and name. Times are whole
        durations, also of kernels that run at once. Empty without kernels.
    """
    kernels = gpu_ops.lazy().filter(pl.col("kind").is_in(["kernel", "graph"])).sort("start_ns")
    begun = steps.lazy().select(*_DEVICE, "step", "start_ns", step_end_ns="end_ns").sort("start_ns")
    duration = pl.col("end_ns") - pl.col("start_ns")
    step = pl.when(pl.col("start_ns") < pl.col("step_end_ns")).then("step")
    return (
        kernels.join_asof(begun, on="start_ns", by=_DEVICE, check_sortedness=False)
        .group_by(*_DEVICE, step.alias("step"), "name", "is_communication")
        .agg(
            count=pl.len(),
            total_ns=duration.sum(),
            min_ns=duration.min(),
            max_ns=duration.max(),
        )
        .collect()
        .sort(*_DEVICE, "step", pl.col("name").cast(pl.String), "is_communication", nulls_last=True)
        .pipe(conform, KERNEL_SUMS)
    )
