"""CPU ranges -> GPU intervals: when the work that a range launched really ran.

thread   [ step                    )
            [ forward )
              ^ launch    ^ launch
stream             [ gemm )   [ adam )     forward -> gemm; step -> gemm start .. adam end
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Literal

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.arrays.threads import open_executor
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.report import KERNEL_KINDS, PROJECTIONS
from nsys_pp.projection.inside import find_inside, find_without_calls
from nsys_pp.projection.launches import match_launches
from nsys_pp.projection.nesting import find_parents
from nsys_pp.projection.places import PROJECTED, Launched, gather_launched, project_places

Scope = Literal["thread", "process", "auto"]

OPS: dict[str, tuple[str, ...]] = {
    # What a user may name -> the kinds of operation that count.
    "kernel": KERNEL_KINDS,
    "memcpy": ("memcpy",),
    "memset": ("memset",),
}

COMPUTED = build_schema(
    {  # when a range computed on a device: one row for each; by both
        name: PROJECTIONS[name]
        for name in ("range_id", "device_id", "gpu_start_ns", "gpu_end_ns", "busy_ns", "scope")
    }
)


def parse_ops(text: str) -> tuple[str, ...]:
    """Read which operations count: keys of `OPS` with commas between, or "all".

    Raises:
        ValueError: Another word stands there.

    >>> parse_ops("kernel,memset"), parse_ops("all")
    (('kernel', 'memset'), ('kernel', 'memcpy', 'memset'))
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return tuple(OPS)
    if unknown := [word for word in words if word not in OPS]:
        raise ValueError(f"{', '.join(map(repr, unknown))} is none of {', '.join(OPS)}, all")
    return tuple(words)


def project_ranges(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    *,
    ops: tuple[str, ...] = ("kernel",),
    scope: Scope = "auto",
    per_stream: bool = False,
    launches: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Project each range onto the first and last GPU operation launched inside it.

    A call is inside a range when `range.start <= call.start and call.end <= range.end`, on the
    thread of the range (scope "thread"), or on any thread of its process ("process"); "auto"
    takes "process" only for ranges without any call of their own thread inside. With all
    `ops` and scope "thread" the intervals are those of NVIDIA's `nvtx_gpu_proj_trace`.

    Args:
        ranges: `RANGES`, any order.
        api_calls: `API_CALLS`, any order.
        gpu_ops: `GPU_OPS`, in order of op_id.
        ops: Which operations count: keys of `OPS`.
        scope: Whose calls count.
        per_stream: One row per stream instead of one per device.
        launches: `LAUNCHES` of all calls and operations, where they are known; None: they are matched.

    Returns:
        `PROJECTIONS`, one row per range and device (and stream) that it reached, by range_id,
        device and stream. Ranges that ended on another thread than they began have no row under
        scope "thread"; `count_cross_thread` counts them. Empty in, empty out.
    """
    if ranges.is_empty():
        return PROJECTIONS.to_frame()
    is_counted = is_among(gpu_ops["kind"], [kind for name in ops for kind in OPS[name]])
    if launches is None:
        counted = gpu_ops[["op_id", "process_key", "correlation_id"]][np.flatnonzero(is_counted)]
        launches = match_launches(api_calls, counted)
    else:
        launches = _launches_of(launches, is_counted)
    if launches.is_empty():
        return PROJECTIONS.to_frame()
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")

    crosses = ranges["end_thread_key"].is_not_null().to_numpy()
    with open_executor(len(launches) + len(ranges)) as beside:
        nest = beside.submit(_nest, ranges, crosses)
        launched = gather_launched(gpu_ops, launches, per_stream=per_stream)
        projected = _project(ranges, crosses, api_calls, launched, scope, beside)
        parent_id, depth = nest.result()

    facts = ranges.select(
        *("process_key", "thread_key", "range_id", "domain", "name", "start_ns", "end_ns", "is_open"),
        parent_id=parent_id,
        depth=pl.Series(depth),
    )
    facts = facts[projected["row"]]
    return conform(pl.concat([projected, facts], how="horizontal"), PROJECTIONS)


def project_compute(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    *,
    scope: Scope,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """Project each range onto its kernels that are not communication, and say only when it computed.

    Args:
        ranges: `RANGES`, any order.
        api_calls: `API_CALLS`, any order.
        gpu_ops: `GPU_OPS`, in order of op_id.
        scope: Whose calls count, as for `project_ranges`.
        launches: `LAUNCHES` of all calls and operations.

    Returns:
        `COMPUTED`, the rows and columns that `project_ranges` would have without communication. Empty in, empty
        out.
    """
    computes = is_among(gpu_ops["kind"], OPS["kernel"]) & ~gpu_ops["is_communication"].to_numpy()
    launches = _launches_of(launches, computes)
    if ranges.is_empty() or launches.is_empty():
        return COMPUTED.to_frame()
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")
    crosses = ranges["end_thread_key"].is_not_null().to_numpy()
    with open_executor(len(launches) + len(ranges)) as beside:
        launched = gather_launched(gpu_ops, launches, per_stream=False)
        projected = _project(ranges, crosses, api_calls, launched, scope, beside)
    range_id = ranges["range_id"].gather(projected["row"])
    return projected.hstack([range_id])[COMPUTED.names()]


def _launches_of(launches: pl.DataFrame, is_counted: Bools) -> pl.DataFrame:
    """Pick the launches of some operations."""
    counts = is_counted[launches["op_id"].to_numpy()]
    return launches if counts.all() else launches.filter(pl.Series(counts))


def _project(
    ranges: pl.DataFrame,
    crosses: Bools,
    api_calls: pl.DataFrame,
    launched: Launched,
    scope: Scope,
    beside: Executor,
) -> pl.DataFrame:
    """Project ranges, of which some cross threads, onto what was launched (`PROJECTED`, by row and place)."""
    parts: list[pl.DataFrame] = []
    is_without_calls = np.ones(len(ranges), dtype=bool) if scope == "process" else crosses.copy()
    if scope != "process":
        inside = find_inside(ranges, np.flatnonzero(~crosses), "thread", api_calls, launched.call_row)
        parts += project_places(inside, launched, beside)
        if scope == "auto":
            is_without_calls[find_without_calls(ranges, inside, api_calls)] = True
    if scope != "thread" and is_without_calls.any():
        without_calls = np.flatnonzero(is_without_calls)
        inside = find_inside(ranges, without_calls, "process", api_calls, launched.call_row)
        parts += project_places(inside, launched, beside)
    projected = pl.concat(parts) if parts else PROJECTED.to_frame()
    if projected["row"].is_sorted():  # places are in order already
        return projected
    return projected[np.argsort(projected["row"].to_numpy(), kind="stable")]


def count_cross_thread(ranges: pl.DataFrame) -> int:
    """Count the ranges that ended on another thread than they began (`RANGES`)."""
    return ranges["end_thread_key"].count()


def _nest(ranges: pl.DataFrame, crosses: Bools) -> tuple[pl.Series, Int64s]:
    """Parent's range_id (null at the top) and depth; ranges across threads stand alone."""
    rows = np.flatnonzero(~crosses)
    columns = (ranges[name].to_numpy() for name in ("range_id", "thread_key", "start_ns", "end_ns"))
    range_id, *nested = (column[rows] for column in columns)
    parent, nested_depth = find_parents(*nested)
    depth = np.zeros(len(ranges), dtype=np.int64)
    depth[rows] = nested_depth
    parent_id = np.full(len(ranges), -1, dtype=np.int64)
    parent_id[rows] = np.where(parent >= 0, range_id[parent], -1)
    is_root = np.ones(len(ranges), dtype=bool)
    is_root[rows] = parent < 0
    return pl.Series(parent_id).set(pl.Series(is_root), None), depth
