"""Durations of GPU operations and sizes of copies and sets, by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.aggregates.step_times import step_on_device
from nsys_pp.arrays.columns import has_value, keep_rows
from nsys_pp.arrays.distributions import build_distributions
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
    full_name = op_details.gather("full_name", gpu_ops["op_id"])
    name = gpu_ops["name"]
    is_short = ~has_value(full_name)
    if is_short.any():
        full_name = name if is_short.all() else name.zip_with(pl.Series(is_short), full_name)
    columns = [
        step_on_device(gpu_ops, steps),
        full_name.alias("name"),
        name.alias("base_name"),
        (gpu_ops["end_ns"] - gpu_ops["start_ns"]).alias("duration_ns"),
    ]
    ops = gpu_ops[[*_DEVICE[:2], "kind", "is_communication"]].hstack(columns)
    keys = [*_DEVICE, "kind", "name", "base_name", "is_communication"]
    return conform(build_distributions(ops, keys, "duration_ns"), OP_AGGREGATES)


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
    size = op_details.gather("size_bytes", gpu_ops["op_id"]).alias("size_bytes")
    is_sized = has_value(size)
    if not is_sized.any():
        return COPY_SIZES.to_frame()
    sized = keep_rows(gpu_ops.hstack([size]), is_sized)
    ops = sized.hstack([step_on_device(sized, steps)])
    return conform(build_distributions(ops, [*_DEVICE, "kind", "name"], "size_bytes"), COPY_SIZES)
