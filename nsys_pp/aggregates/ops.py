"""Durations of GPU operations and sizes of copies and sets, by name."""

from __future__ import annotations

from functools import partial

import polars as pl

from nsys_pp.aggregates.step_times import step_on_device
from nsys_pp.arrays.columns import has_value, keep_rows, subtract
from nsys_pp.arrays.distributions import build_distributions
from nsys_pp.arrays.scratch_frames import build_blocks, map_column
from nsys_pp.frames.aggregates import COPY_SIZES, OP_AGGREGATES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import OpDetails

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
    names = gpu_ops[["op_id", "name"]]
    columns = [
        step_on_device(gpu_ops, steps),
        *build_blocks(len(names), lambda first, stop: _name_fully(names[first:stop], op_details)),
        gpu_ops["name"].alias("base_name"),
        subtract(gpu_ops["end_ns"], gpu_ops["start_ns"]).alias("duration_ns"),
    ]
    ops = gpu_ops[[*_DEVICE[:2], "kind", "is_communication"]].hstack(columns)
    keys = [*_DEVICE, "kind", "name", "base_name", "is_communication"]
    return conform(build_distributions(ops, keys, "duration_ns"), OP_AGGREGATES)


def _name_fully(ops: pl.DataFrame, op_details: OpDetails) -> pl.DataFrame:
    """Return the demangled names of operations (op_id, name), and short names where these are null: `name`."""
    name, full_name = ops["name"], op_details.gather("full_name", ops["op_id"])
    is_short = ~has_value(full_name)
    if is_short.any():
        full_name = name if is_short.all() else name.zip_with(pl.Series(is_short), full_name)
    return full_name.alias("name").to_frame()


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
    size = map_column(gpu_ops["op_id"], partial(op_details.gather, "size_bytes")).alias("size_bytes")
    is_sized = has_value(size)
    if not is_sized.any():
        return COPY_SIZES.to_frame()
    sized = keep_rows(gpu_ops.hstack([size]), is_sized)
    ops = sized.hstack([step_on_device(sized, steps)])
    return conform(build_distributions(ops, [*_DEVICE, "kind", "name"], "size_bytes"), COPY_SIZES)
