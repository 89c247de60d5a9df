"""Operators of a framework, the operators inside them, and the GPU operations that they launched.

thread   [ linear dygraph                         )     outermost
           [ matmul dygraph        ) [ add )            inner: directly inside an outermost operator
             [ matmul compute )                         deeper: part of both, without rows of its own
                 ^ launches gemm                        (linear dygraph, matmul dygraph, gemm)
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.item_sums import sum_instances
from nsys_pp.aggregates.step_times import step_on_device, step_on_host
from nsys_pp.arrays.columns import gather, gather_rows, has_value, index_rows, keep_rows, numbers, pack
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.records import select_rows
from nsys_pp.arrays.search import find_last, find_rows, number_keys
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.aggregates import ITEM_AGGREGATES

_CALL = ("thread_key", "start_ns", "end_ns")


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
    named = keep_rows(operators, has_value(operators["name"]))
    instances = _list_instances(ranges, numbers(named["range_id"]))
    if not len(instances.row):
        return ITEM_AGGREGATES.to_frame()
    is_contained = _is_contained(instances)
    outer, rest = select_rows(instances, ~is_contained), select_rows(instances, is_contained)
    inner = select_rows(rest, ~_is_contained(rest))
    outer_name, inner_name = (gather(named["name"], level.named) for level in (outer, inner))

    around = _find_around(inner, outer)
    names = ([outer_name.alias("name")], [gather(outer_name, around), inner_name.alias("inner")])
    levels = [
        _describe(level, ranges, steps).hstack(own) for level, own in zip((outer, inner), names, strict=True)
    ]
    ops = _list_ops(gpu_ops, api_calls, launches)
    in_outer, in_inner = _find_around(ops, outer), _find_around(ops, inner)
    is_inside = in_outer >= 0
    ops, in_outer, in_inner = select_rows(ops, is_inside), in_outer[is_inside], in_inner[is_inside]
    facts = index_rows(gpu_ops[["process_key", "device_id", "name", "start_ns"]], ops.row)
    parts = [
        *(_sum_host(level, own) for level, own in zip(levels, (outer, inner), strict=True)),
        *(
            _sum_gpu(level, ops, facts["device_id"], at)
            for level, at in zip(levels, (in_outer, in_inner), strict=True)
        ),
        _sum_kernels(
            facts,
            ops,
            gather(outer_name, in_outer),
            gather_rows(inner_name.to_frame(), ["name"], in_inner)["name"],
            steps=steps,
        ),
    ]
    return pl.concat(parts)


class _Instances(Struct, frozen=True):
    """Operators of ranges, by thread and start, longest first; of equal ranges, the first is the outer range."""

    row: Int64s  # of `RANGES`
    named: Int64s  # row of the named operators
    thread: Int64s
    start: Int64s
    end: Int64s


class _Ops(Struct, frozen=True):
    """Operations with a known call."""

    row: Int64s  # of `GPU_OPS`
    call: Int64s  # row of `API_CALLS`
    duration: Int64s
    thread: Int64s  # of the call
    start: Int64s
    end: Int64s


def _list_instances(ranges: pl.DataFrame, range_id: Int64s) -> _Instances:
    """List the ranges that are operators and end on their thread; `range_id`: of the operators."""
    named = find_rows(range_id, numbers(ranges["range_id"]))
    row = np.flatnonzero((named >= 0) & ~has_value(ranges["end_thread_key"]))
    thread, start, end = (numbers(ranges[name])[row] for name in _CALL)
    instances = _Instances(row, named[row], thread, start, end)
    return select_rows(instances, sort_rows(thread, start, -end))


def _describe(level: _Instances, ranges: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the process_key and step of operators."""
    chosen = index_rows(ranges[["process_key", "start_ns"]], level.row)
    return chosen[["process_key"]].hstack([step_on_host(chosen, steps)])


def _sum_host(facts: pl.DataFrame, operators: _Instances) -> pl.DataFrame:
    length = pl.Series("value_ns", operators.end - operators.start)
    return sum_instances(facts.hstack([length]), item="operator", measure="host")


def _sum_gpu(facts: pl.DataFrame, ops: _Ops, device: pl.Series, at: Int64s) -> pl.DataFrame:
    """Add up the operations of each instance on each device; instances without operations are dropped.

    Args:
        facts: process_key, step and names of the instances.
        ops: Operations.
        device: Device of each operation.
        at: Row of the instance around the call of each operation; -1 without one.
    """
    inside = np.flatnonzero(at >= 0)
    instance, call = at[inside], ops.call[inside]
    first, number = number_keys(pack(instance, numbers(device)[inside]))
    total = np.zeros(len(first), dtype=np.int64)
    np.add.at(total, number, ops.duration[inside])
    distinct, _ = number_keys(pack(number.astype(np.int64), call))
    call_count = np.bincount(number[distinct], minlength=len(first))
    columns = [
        gather(device, inside[first]),
        pl.Series("value_ns", total),
        pl.Series("call_count", call_count, dtype=pl.Int64),
    ]
    launched = index_rows(facts, instance[first]).hstack(columns)
    return sum_instances(launched, item="operator", measure="gpu")


def _sum_kernels(
    facts: pl.DataFrame, ops: _Ops, name: pl.Series, inner: pl.Series, *, steps: pl.DataFrame
) -> pl.DataFrame:
    """Add up single operations by the operators around them."""
    columns = [
        step_on_device(facts, steps),
        name.alias("name"),
        inner.alias("inner"),
        facts["name"].alias("kernel"),
        pl.Series("value_ns", ops.duration),
    ]
    instances = facts[["process_key", "device_id"]].hstack(columns)
    return sum_instances(instances, item="operator", measure="gpu")


def _list_ops(gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame) -> _Ops:
    """List the operations with a known call."""
    call = find_launch_calls(gpu_ops["op_id"], gpu_ops=gpu_ops, api_calls=api_calls, launches=launches)
    row = np.flatnonzero(call >= 0)
    call = call[row]
    start, end = (numbers(gpu_ops[name])[row] for name in ("start_ns", "end_ns"))
    return _Ops(row, call, end - start, *(numbers(api_calls[name])[call] for name in _CALL))


def _is_contained(ranges: _Instances) -> Bools:
    """Return the mask of ranges inside another range of their thread."""
    thread, end = ranges.thread, ranges.end
    is_contained = np.zeros(len(end), dtype=np.bool_)
    if len(end):
        is_same = thread[1:] == thread[:-1]
        reached = running_maximum(np.cumsum(np.append(False, ~is_same)), end)
        is_contained[1:] = is_same & (reached[:-1] >= end[1:])
    return is_contained


def _find_around(items: _Instances | _Ops, ranges: _Instances) -> Int64s:
    """Find the range around each item, on its thread; of two crossing ranges, the later one.

    As no range lies inside another, the last range to start is also the last to end: if it does not
    contain the item, no range does.

    Args:
        items: Ranges, or operations with their calls.
        ranges: Ranges of which none lies inside another.

    Returns:
        Row of `ranges`, -1 without any.
    """
    at = find_last(items.thread, items.start, ranges.thread, ranges.start)
    if len(ranges.end):
        at[items.end > ranges.end[at]] = -1
    return at
