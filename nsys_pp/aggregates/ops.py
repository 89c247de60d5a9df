"""Durations of GPU operations and sizes of copies and sets, by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.windows import step_on_device
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.frames.aggregates import COPY_SIZES, OP_AGGREGATES
from nsys_pp.frames.conform import conform

_DEVICE = ("process_key", "device_id", "step")


def sum_ops(gpu_ops: pl.DataFrame, op_details: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up durations of operations by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: `OP_DETAILS` with the demangled names of kernels; if empty, short names are used.
        steps: `STEPS`.

    Returns:
        `OP_AGGREGATES`, in order of the first operation of each row. Kernels of one short name that differ in
        template arguments or parameters are rows of their own, as in `cuda_gpu_kern_sum` of `nsys stats`.
        Empty in, empty out.
    """
    ops = gpu_ops.select(
        *_DEVICE[:2],
        "kind",
        step_on_device(gpu_ops, steps),
        pl.coalesce(_detail("full_name", gpu_ops, op_details), "name").alias("name"),
        "is_communication",
        base_name="name",
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    sums = build_distributions(
        ops, [*_DEVICE, "kind", "name", "base_name", "is_communication"], "duration_ns"
    )
    return conform(sums, OP_AGGREGATES)


def sum_copy_sizes(gpu_ops: pl.DataFrame, op_details: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up bytes of copies and sets by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: `OP_DETAILS`; if empty, no size is known.
        steps: `STEPS`.

    Returns:
        `COPY_SIZES`, in order of the first operation of each row; operations without a recorded size are skipped.
        Empty in, empty out.
    """
    sized = gpu_ops.with_columns(_detail("size_bytes", gpu_ops, op_details)).drop_nulls("size_bytes")
    ops = sized.with_columns(step_on_device(sized, steps))
    return conform(build_distributions(ops, [*_DEVICE, "kind", "name"], "size_bytes"), COPY_SIZES)


def _detail(column: str, gpu_ops: pl.DataFrame, op_details: pl.DataFrame) -> pl.Series:
    """Return a column of `OP_DETAILS` (row i belongs to op_id i) per operation; nulls without details."""
    if op_details.is_empty():
        return op_details[column].extend_constant(None, len(gpu_ops))
    return op_details[column].gather(gpu_ops["op_id"])
