"""Durations of GPU operations and sizes of copies and sets, by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.windows import step_on_device
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.scratch_frames import build_blocks
from nsys_pp.frames.aggregates import COPY_SIZES, OP_AGGREGATES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.op_details import OpDetails

_DEVICE = ("process_key", "device_id", "step")


def sum_ops(gpu_ops: pl.DataFrame, op_details: OpDetails, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up durations of operations by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: With the demangled names of kernels; if empty, short names are used.
        steps: `STEPS`.

    Returns:
        `OP_AGGREGATES`, in order of the first operation of each row. Kernels of one short name that differ in
        template arguments or parameters are rows of their own, as in `cuda_gpu_kern_sum` of `nsys stats`.
        Empty in, empty out.
    """

    def time(first: int, stop: int) -> pl.DataFrame:
        ops = gpu_ops[first:stop]
        return ops.select(
            *_DEVICE[:2],
            "kind",
            step_on_device(ops, steps),
            pl.coalesce(op_details.gather("full_name", ops["op_id"]), "name").alias("name"),
            "is_communication",
            base_name="name",
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        )

    ops = build_blocks(len(gpu_ops), time)
    sums = build_distributions(
        ops, [*_DEVICE, "kind", "name", "base_name", "is_communication"], "duration_ns"
    )
    return conform(sums, OP_AGGREGATES)


def sum_copy_sizes(gpu_ops: pl.DataFrame, op_details: OpDetails, steps: pl.DataFrame) -> pl.DataFrame:
    """Add up bytes of copies and sets by name.

    Args:
        gpu_ops: `GPU_OPS`.
        op_details: If empty, no size is known.
        steps: `STEPS`.

    Returns:
        `COPY_SIZES`, in order of the first operation of each row; operations without a recorded size are skipped.
        Empty in, empty out.
    """

    def size(first: int, stop: int) -> pl.DataFrame:
        rows = gpu_ops[first:stop][[*_DEVICE[:2], "kind", "name", "start_ns", "op_id"]]
        sized = rows.with_columns(op_details.gather("size_bytes", rows["op_id"])).drop_nulls("size_bytes")
        return sized.with_columns(step_on_device(sized, steps))

    ops = build_blocks(len(gpu_ops), size)
    return conform(build_distributions(ops, [*_DEVICE, "kind", "name"], "size_bytes"), COPY_SIZES)
