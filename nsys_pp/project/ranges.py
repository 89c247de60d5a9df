"""CPU ranges -> GPU intervals: when the work that a range launched really ran.

    thread   [ step                    )
                [ forward )
                  ^ launch    ^ launch
    stream             [ gemm )   [ adam )     forward -> gemm; step -> gemm start .. adam end
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys_pp.project.busy import measure_busy
from nsys_pp.project.extremes import find_minimum
from nsys_pp.project.launches import match_launches
from nsys_pp.project.nesting import find_parents
from nsys_pp.project.windows import Windows, find_windows, split_windows
from nsys_pp.schema import PROJECTIONS, conform

Int64s = npt.NDArray[np.int64]
Scope = Literal["thread", "process", "auto"]

OPS: dict[str, tuple[str, ...]] = {
    # What a user may name -> the kinds of operation that count. A graph that was traced as a
    # whole stands for its kernels.
    "kernel": ("kernel", "graph"),
    "memcpy": ("memcpy",),
    "memset": ("memset",),
}


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

    Returns:
        `PROJECTIONS`, one row per range and device (and stream) that it reached, by range_id,
        device and stream. Ranges that ended on another thread than they began have no row under
        scope "thread"; `count_cross_thread` counts them. Empty in, empty out.
    """
    ranges = ranges.sort("range_id")
    kinds = [kind for name in ops for kind in OPS[name]]
    counted = gpu_ops.filter(pl.col("kind").is_in(kinds))
    launches = match_launches(api_calls, counted)
    if ranges.is_empty() or launches.is_empty():
        return PROJECTIONS.to_frame()

    crosses = ranges["end_thread_key"].is_not_null().to_numpy()
    parent_id, depth = _nest(ranges, crosses)
    by_thread = np.flatnonzero(~crosses)
    by_process = np.zeros(0, dtype=np.int64)
    if scope == "process":
        by_thread, by_process = by_process, np.arange(len(ranges))
    elif scope == "auto":
        lonely = ~_has_own_call(ranges, api_calls) | crosses
        by_thread, by_process = np.flatnonzero(~lonely), np.flatnonzero(lonely)

    parts = [
        _project(ranges, rows, owner, api_calls, gpu_ops, launches, per_stream).with_columns(
            scope=pl.lit(name)
        )
        for rows, owner, name in ((by_thread, "thread_key", "thread"), (by_process, "process_key", "process"))
        if len(rows)
    ]
    if not parts:
        return PROJECTIONS.to_frame()
    projected = pl.concat(parts)
    if not projected["row"].is_sorted() or projected["row"].is_duplicated().any():
        projected = projected.sort("row", "device_id", "stream_id")
    row = projected["row"]
    facts = ranges.select(
        *("process_key", "thread_key", "range_id", "domain", "name", "start_ns", "end_ns", "is_open"),
        parent_id=pl.Series(parent_id),
        depth=pl.Series(depth),
    )[row]
    return conform(pl.concat([projected, facts], how="horizontal"), PROJECTIONS)


def count_cross_thread(ranges: pl.DataFrame) -> int:
    """Count the ranges that ended on another thread than they began (`RANGES`)."""
    return ranges["end_thread_key"].count()


def _nest(ranges: pl.DataFrame, crosses: npt.NDArray[np.bool_]) -> tuple[pl.Series, Int64s]:
    """Parent's range_id (null at the top) and depth; ranges across threads stand alone."""
    rows = np.flatnonzero(~crosses)
    inside = ranges[rows] if crosses.any() else ranges
    parent, nested_depth = find_parents(*_columns(inside, "thread_key", "start_ns", "end_ns"))
    depth = np.zeros(len(ranges), dtype=np.int64)
    depth[rows] = nested_depth
    parent_id = np.full(len(ranges), -1, dtype=np.int64)
    parent_id[rows] = np.where(parent >= 0, inside["range_id"].to_numpy()[parent], -1)
    is_root = np.ones(len(ranges), dtype=bool)
    is_root[rows] = parent < 0
    return pl.Series(parent_id).set(pl.Series(is_root), None), depth


def _has_own_call(ranges: pl.DataFrame, api_calls: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Say whether any API call of its thread, launching or not, lies inside each range."""
    calls = api_calls.select("thread_key", "start_ns", "end_ns").sort("thread_key", "start_ns")
    windows = _windows(ranges, "thread_key", calls)
    size = windows.last - windows.first
    return size > np.bincount(windows.cut_range, minlength=len(size))


def _windows(ranges: pl.DataFrame, owner: str, calls: pl.DataFrame) -> Windows:
    columns = (owner, "start_ns", "end_ns")
    return find_windows(*_columns(ranges, *columns), *_columns(calls, *columns))


def _columns(frame: pl.DataFrame, *names: str) -> tuple[Int64s, ...]:
    return tuple(frame[name].to_numpy() for name in names)


def _project(
    ranges: pl.DataFrame,
    rows: Int64s,
    owner: str,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launches: pl.DataFrame,
    per_stream: bool,
) -> pl.DataFrame:
    """Project some rows of `ranges` on the calls of one owner, each (process, device[, stream]) for itself."""
    chosen = ranges[rows] if len(rows) < len(ranges) else ranges
    calls, position = _order_calls(api_calls, launches["call_row"], owner)
    windows = _windows(chosen, owner, calls)
    call_owner = calls[owner].rle_id().cast(pl.Int64).to_numpy()
    piece_row, piece_first, piece_last = split_windows(windows)

    launched = gpu_ops.select("process_key", "device_id", "stream_id", "start_ns", "end_ns", "name")[
        launches["op_id"]
    ].with_columns(position=pl.Series(position))
    if not launched["position"].is_sorted():
        launched = launched.sort("position", maintain_order=True)
    keys = ["process_key", "device_id", "stream_id"] if per_stream else ["process_key", "device_id"]
    parts = [PROJECTED.to_frame()]
    for key, group in launched.partition_by(keys, as_dict=True, maintain_order=True).items():
        part = _project_group(group, windows, call_owner, piece_row, piece_first, piece_last)
        stream_id = key[2] if per_stream else None
        parts.append(
            part.with_columns(
                row=pl.Series(rows)[part["row"]],
                device_id=pl.lit(key[1], pl.Int32),
                stream_id=pl.lit(stream_id, pl.Int64),
            ).select(PROJECTED.names())
        )
    return pl.concat(parts)


PROJECTED = pl.Schema({
    "row": pl.Int64,
    "device_id": pl.Int32,
    "stream_id": pl.Int64,
    **{
        column: PROJECTIONS[column]
        for column in (
            *("gpu_start_ns", "gpu_end_ns", "busy_ns", "call_count", "op_count"),
            *("first_op", "last_op"),
        )
    },
})


def _order_calls(api_calls: pl.DataFrame, call_row: pl.Series, owner: str) -> tuple[pl.DataFrame, Int64s]:
    """Put the launching calls in order of (owner, start); returns them and each launch's position."""
    rows = call_row.to_numpy()
    is_launching = np.zeros(len(api_calls), dtype=bool)
    is_launching[rows] = True
    launching = np.flatnonzero(is_launching)
    calls = api_calls.select(owner, "start_ns", "end_ns")
    if len(launching) < len(calls):
        calls = calls[launching]
    order = np.lexsort(_columns(calls, "end_ns", "start_ns", owner))
    position = np.empty(len(api_calls), dtype=np.int64)
    position[launching[order]] = np.arange(len(order))
    return calls[order], position[rows]


def _project_group(
    ops: pl.DataFrame,
    windows: Windows,
    call_owner: Int64s,
    piece_row: Int64s,
    piece_first: Int64s,
    piece_last: Int64s,
) -> pl.DataFrame:
    """Project the ranges onto one device or stream: `ops`, in order of their calls' positions."""
    position, start, end = _columns(ops, "position", "start_ns", "end_ns")
    per_call = np.bincount(position, minlength=len(call_owner))
    ops_before = np.concatenate([[0], np.cumsum(per_call)])
    calls_before = np.concatenate([[0], np.cumsum(per_call > 0)])

    op_first, op_last = ops_before[piece_first], ops_before[piece_last]
    hit = op_last > op_first
    op_first, op_last, piece_row = op_first[hit], op_last[hit], piece_row[hit]
    call_size = (calls_before[piece_last] - calls_before[piece_first])[hit]
    if not len(piece_row):
        return PROJECTED.to_frame()
    bounds = np.flatnonzero(np.concatenate([[True], piece_row[1:] != piece_row[:-1]]))
    row = piece_row[bounds]

    starts_first, ends_last = np.lexsort((start,)), np.lexsort((-end,))
    first_op = starts_first[_least(starts_first, op_first, op_last, bounds)]
    last_op = ends_last[_least(ends_last, op_first, op_last, bounds)]
    busy = measure_busy(
        op_start=start,
        op_end=end,
        op_first_call=position,
        op_last_call=windows.end_position[position],
        op_owner=call_owner[position],
        call_count=len(call_owner),
        piece_row=np.repeat(np.arange(len(row)), np.diff(np.append(bounds, len(piece_row)))),
        piece_first=op_first,
        piece_last=op_last,
        first_call=windows.first[row],
        last_call=windows.last_by_end[row],
    )
    name = ops["name"]
    return pl.DataFrame({
        "row": row,
        "device_id": pl.Series([None], dtype=pl.Int32).new_from_index(0, len(row)),
        "stream_id": pl.Series([None], dtype=pl.Int64).new_from_index(0, len(row)),
        "gpu_start_ns": start[first_op],
        "gpu_end_ns": end[last_op],
        "busy_ns": busy,
        "call_count": np.add.reduceat(call_size, bounds),
        "op_count": np.add.reduceat(op_last - op_first, bounds),
        "first_op": name[first_op],
        "last_op": name[last_op],
    })


def _least(order: Int64s, op_first: Int64s, op_last: Int64s, bounds: Int64s) -> Int64s:
    """Per row, the rank in `order` of its operation that comes first there."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return np.minimum.reduceat(find_minimum(rank, op_first, op_last), bounds)
