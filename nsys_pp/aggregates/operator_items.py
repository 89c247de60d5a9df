"""Operators of a framework, the operators inside them, and the GPU operations that they launched.

thread   [ linear dygraph                         )     outermost
           [ matmul dygraph        ) [ add )            inner: directly inside an outermost operator
             [ matmul compute )                         deeper: part of both, without rows of its own
                 ^ launches gemm                        (linear dygraph, matmul dygraph, gemm)
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.step_times import step_on_device, step_on_host
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.frames.aggregates import ITEM_AGGREGATES
from nsys_pp.frames.report import NAME


def sum_operators(
    ranges: pl.DataFrame,
    operators: pl.DataFrame,
    *,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Add up operators: the outermost ones, the operators directly inside them, and their GPU operations.

    An operation belongs to the operators around the call that launched it, on the thread of the call; if
    several calls did, to the earliest one. Operations of all kinds count.

    Args:
        ranges: `RANGES`.
        operators: `NAMED_OPERATORS`; rows without a name are not operators. Ranges that end on another
            thread are skipped.
        gpu_ops: `GPU_OPS`, in order of op_id.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES`.
        steps: `STEPS`.

    Returns:
        `ITEM_AGGREGATES` of item "operator", measures "host" and "gpu". Rows with a `kernel` hold single
        operations, each in one row: `inner` is the inner operator around its call, null without one.
        Empty in, empty out.
    """
    named = operators.drop_nulls("name").select("range_id", operator="name")
    instances = ranges.filter(pl.col("end_thread_key").is_null()).join(named, on="range_id")
    if instances.is_empty():
        return ITEM_AGGREGATES.to_frame()
    instances = instances.select(
        "process_key",
        "thread_key",
        "start_ns",
        "end_ns",
        "operator",
        step_on_host(instances, steps),
    ).sort("thread_key", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
    is_contained = _is_contained(instances)
    outer, rest = instances.filter(~is_contained), instances.filter(is_contained)
    inner = rest.filter(~_is_contained(rest))

    outer = outer.with_columns(name="operator", inner=pl.lit(None, NAME))
    around = _find_around(inner, outer)
    inner = inner.with_columns(name=outer["operator"].gather(around), inner="operator")

    ops = _list_ops(gpu_ops, api_calls, launches, steps)
    in_outer, in_inner = _find_around(ops, outer), _find_around(ops, inner)
    parts = [
        *(_sum_host(level) for level in (outer, inner)),
        *(_sum_gpu(level, ops, at) for level, at in ((outer, in_outer), (inner, in_inner))),
        _sum_kernels(ops, outer["operator"].gather(in_outer), inner["operator"].gather(in_inner)),
    ]
    return pl.concat(parts)


def _sum_host(operators: pl.DataFrame) -> pl.DataFrame:
    instances = operators.select(
        "process_key", "step", "name", "inner", value_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    return sum_instances(instances, item="operator", measure="host")


def _sum_gpu(operators: pl.DataFrame, ops: pl.DataFrame, at: pl.Series) -> pl.DataFrame:
    """Add up the operations of each instance on each device; instances without operations are dropped."""
    launched = (
        ops.select("device_id", "call_row", "duration_ns", at.alias("row"))
        .drop_nulls("row")
        .group_by("row", "device_id", maintain_order=True)
        .agg(
            value_ns=pl.col("duration_ns").sum(),
            call_count=pl.col("call_row").n_unique().cast(pl.Int64),
        )
    )
    facts = operators.select("process_key", "step", "name", "inner")[launched["row"]]
    return sum_instances(launched.drop("row").hstack(facts), item="operator", measure="gpu")


def _sum_kernels(ops: pl.DataFrame, name: pl.Series, inner: pl.Series) -> pl.DataFrame:
    instances = ops.select(
        "process_key",
        "device_id",
        "step",
        name.alias("name"),
        inner.alias("inner"),
        kernel="name",
        value_ns="duration_ns",
    ).drop_nulls("name")
    return sum_instances(instances, item="operator", measure="gpu")


def _list_ops(
    gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame, steps: pl.DataFrame
) -> pl.DataFrame:
    """List the operations with a known call: device, step, and thread_key, start_ns and end_ns of the launch call."""
    call_row = pl.Series(
        "call_row",
        find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches),
    )
    ops = gpu_ops.filter(call_row >= 0)
    call_row = call_row.filter(call_row >= 0)
    calls = api_calls.select("thread_key", "start_ns", "end_ns")[call_row]
    placed = ops.select(
        "process_key",
        "device_id",
        step_on_device(ops, steps),
        "name",
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    return placed.hstack([call_row, *calls])


def _is_contained(ranges: pl.DataFrame) -> pl.Series:
    """Return the mask of ranges inside another range of their thread.

    Args:
        ranges: Sorted by thread_key, start_ns, longest first; of equal ranges, the first is the outer range.
    """
    if ranges.is_empty():
        return pl.Series(dtype=pl.Boolean)
    thread, end = ranges["thread_key"].rle_id().cast(pl.Int64).to_numpy(), ranges["end_ns"].to_numpy()
    reached = running_maximum(thread, end)
    is_contained = np.zeros(len(end), dtype=np.bool_)
    is_contained[1:] = (thread[1:] == thread[:-1]) & (reached[:-1] >= end[1:])
    return pl.Series(is_contained)


def _find_around(frame: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Find the range around each row, on its thread; of two crossing ranges, the later one.

    As no range lies inside another, the last range to start is also the last to end: if it does
    not contain the row, no range does.

    Args:
        frame: thread_key, start_ns, end_ns.
        ranges: The same columns, by thread_key and start_ns; no range lies inside another.

    Returns:
        Row of `ranges`, null without any.
    """
    intervals = frame.select("thread_key", "start_ns", "end_ns").with_row_index("row").sort("start_ns")
    candidates = (
        ranges.select("thread_key", "start_ns", until_ns="end_ns")
        .with_row_index("range_row")
        .sort("start_ns")
    )
    is_around = pl.col("end_ns") <= pl.col("until_ns")
    return (
        intervals.join_asof(candidates, on="start_ns", by="thread_key", check_sortedness=False)
        .sort("row")
        .select(pl.when(is_around).then("range_row"))["range_row"]
    )
