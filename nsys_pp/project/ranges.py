"""CPU ranges -> GPU intervals: when the work that a range launched really ran.

thread   [ step                    )
            [ forward )
              ^ launch    ^ launch
stream             [ gemm )   [ adam )     forward -> gemm; step -> gemm start .. adam end
"""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
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
Bools = npt.NDArray[np.bool_]
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
    kinds = [kind for name in ops for kind in OPS[name]]
    counted = gpu_ops.filter(pl.col("kind").is_in(kinds))
    launches = match_launches(api_calls, counted)
    if ranges.is_empty() or launches.is_empty():
        return PROJECTIONS.to_frame()
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")

    crosses = ranges["end_thread_key"].is_not_null().to_numpy()
    with ThreadPoolExecutor(2) as beside:  # numpy leaves the interpreter to others while it works
        nest = beside.submit(_nest, ranges, crosses)
        launched = _gather_launched(gpu_ops, launches, per_stream)
        parts = [PROJECTED.to_frame()]
        lonely = np.ones(len(ranges), dtype=bool)
        if scope != "process":
            part, is_alone = _project(ranges, np.flatnonzero(~crosses), "thread", api_calls, launched, beside)
            parts.append(part)
            lonely = crosses if scope == "thread" else _has_no_call(ranges, is_alone | crosses, api_calls)
        if scope != "thread" and lonely.any():
            part, _ = _project(ranges, np.flatnonzero(lonely), "process", api_calls, launched, beside)
            parts.append(part)
        parent_id, depth = nest.result()

    projected = pl.concat(parts)
    if not (projected["row"].is_sorted() and projected["row"].n_unique() == len(projected)):
        projected = projected.sort("row", "device_id", "stream_id")
    facts = ranges.select(
        *("process_key", "thread_key", "range_id", "domain", "name", "start_ns", "end_ns", "is_open"),
        parent_id=parent_id,
        depth=pl.Series(depth),
    )
    facts = facts[projected["row"]]
    return conform(pl.concat([projected, facts], how="horizontal"), PROJECTIONS)


def count_cross_thread(ranges: pl.DataFrame) -> int:
    """Count the ranges that ended on another thread than they began (`RANGES`)."""
    return ranges["end_thread_key"].count()


def _nest(ranges: pl.DataFrame, crosses: Bools) -> tuple[pl.Series, Int64s]:
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


def _has_no_call(ranges: pl.DataFrame, may_lack: Bools, api_calls: pl.DataFrame) -> Bools:
    """Say which of the ranges that may lack one have no API call of their thread inside, launching or not."""
    rows = np.flatnonzero(may_lack)
    calls = api_calls.select("thread_key", "start_ns", "end_ns").sort("thread_key", "start_ns")
    windows = _find_windows(ranges[rows], "thread_key", calls)
    size = windows.last - windows.first
    lacks = np.zeros(len(ranges), dtype=bool)
    crosses = ranges["end_thread_key"].is_not_null().to_numpy()[rows]
    lacks[rows] = crosses | (size == np.bincount(windows.cut_range, minlength=len(size)))
    return lacks


def _find_windows(ranges: pl.DataFrame, owner: str, calls: pl.DataFrame) -> Windows:
    columns = (owner, "start_ns", "end_ns")
    return find_windows(*_columns(ranges, *columns), *_columns(calls, *columns))


def _columns(frame: pl.DataFrame, *names: str) -> tuple[Int64s, ...]:
    return tuple(frame[name].to_numpy() for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launched:
    """Operations that have a call, one row per launch, those of one place (device or stream) together."""

    call_row: Int64s
    start: Int64s
    end: Int64s
    name: pl.Series
    place: Int64s  # number of the place, ascending
    places: list[tuple[int, int | None]]  # device_id and stream_id of each number


def _gather_launched(gpu_ops: pl.DataFrame, launches: pl.DataFrame, per_stream: bool) -> _Launched:
    """Gather what projection needs of the launched operations."""
    keys = ["process_key", "device_id", *(["stream_id"] if per_stream else [])]
    ops = gpu_ops.select(*keys, "start_ns", "end_ns", "name")[launches["op_id"]]
    places = ops.select(keys).unique(maintain_order=True)
    call_row = launches["call_row"].cast(pl.Int64).to_numpy()
    if len(places) == 1:
        place = np.zeros(len(ops), dtype=np.int64)
    else:
        numbered = places.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64))
        place = ops.join(numbered, on=keys, how="left", maintain_order="left")["place"].to_numpy()
        order = np.argsort(place.astype(np.uint16) if len(places) < 1 << 16 else place, kind="stable")
        place, call_row, ops = place[order], call_row[order], ops[order]
    start, end = _columns(ops, "start_ns", "end_ns")
    return _Launched(
        call_row=call_row,
        start=start,
        end=end,
        name=ops["name"],
        place=place,
        places=[(row[1], row[2] if per_stream else None) for row in places.iter_rows()],
    )


PROJECTED = pl.Schema(
    {
        "row": pl.Int64(),
        **{
            column: PROJECTIONS[column]
            for column in (
                *("scope", "device_id", "stream_id", "gpu_start_ns", "gpu_end_ns", "busy_ns", "call_count"),
                *("op_count", "first_op", "last_op"),
            )
        },
    }
)


def _project(
    ranges: pl.DataFrame,
    rows: Int64s,
    scope: str,
    api_calls: pl.DataFrame,
    launched: _Launched,
    beside: Executor,
) -> tuple[pl.DataFrame, Bools]:
    """Project some rows of `ranges` on the calls of their thread or process, each place for itself.

    Returns:
        `PROJECTED`; which of all ranges have no launching call inside (those not among `rows` have none).
    """
    owner = f"{scope}_key"
    calls, position = _order_calls(api_calls, launched.call_row, owner)
    windows = _find_windows(ranges[rows] if len(rows) < len(ranges) else ranges, owner, calls)
    pieces = split_windows(windows)
    is_alone = np.ones(len(ranges), dtype=bool)
    is_alone[rows[pieces[0]]] = False
    if is_alone.all():
        return PROJECTED.to_frame(), is_alone
    call_owner = calls[owner].rle_id().cast(pl.Int64).to_numpy()
    bounds = np.searchsorted(launched.place, np.arange(len(launched.places) + 1)).tolist()
    parts = [PROJECTED.to_frame()]
    for (device_id, stream_id), first, last in zip(launched.places, bounds[:-1], bounds[1:], strict=True):
        at, start, end = position[first:last], launched.start[first:last], launched.end[first:last]
        name = launched.name[first:last]
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at, kind="stable")
            at, start, end, name = at[order], start[order], end[order], name[order]
        part = _project_place(at, start, end, name, windows, call_owner, *pieces, beside)
        parts.append(
            part.with_columns(
                row=pl.Series(rows[part["row"].to_numpy()]),
                scope=pl.lit(scope, PROJECTIONS["scope"]),
                device_id=pl.lit(device_id, pl.Int32),
                stream_id=pl.lit(stream_id, pl.Int64),
            ).select(PROJECTED.names())
        )
    return pl.concat(parts), is_alone


def _order_calls(api_calls: pl.DataFrame, call_row: Int64s, owner: str) -> tuple[pl.DataFrame, Int64s]:
    """Put the launching calls in order of (owner, start); returns them and each launch's position."""
    is_launching = np.zeros(len(api_calls), dtype=bool)
    is_launching[call_row] = True
    launching = np.flatnonzero(is_launching)
    calls = api_calls.select(owner, "start_ns", "end_ns")
    if len(launching) < len(calls):
        calls = calls[launching]
    order = np.lexsort(_columns(calls, "end_ns", "start_ns", owner))
    position = np.empty(len(api_calls), dtype=np.int64)
    position[launching[order]] = np.arange(len(order))
    return calls[order], position[call_row]


def _project_place(
    position: Int64s,
    start: Int64s,
    end: Int64s,
    name: pl.Series,
    windows: Windows,
    call_owner: Int64s,
    piece_row: Int64s,
    piece_first: Int64s,
    piece_last: Int64s,
    beside: Executor,
) -> pl.DataFrame:
    """Project the ranges onto the operations of one place, in order of their calls' positions."""
    per_call = np.bincount(position, minlength=len(call_owner))
    ops_before = np.concatenate([[0], np.cumsum(per_call)])
    calls_before = np.concatenate([[0], np.cumsum(per_call > 0)])

    op_first, op_last = ops_before[piece_first], ops_before[piece_last]
    hit = np.flatnonzero(op_last > op_first)
    op_first, op_last, piece_row = op_first[hit], op_last[hit], piece_row[hit]
    call_size = calls_before[piece_last[hit]] - calls_before[piece_first[hit]]
    if not len(piece_row):
        return PROJECTED.to_frame()
    is_first = np.ones(len(piece_row), dtype=bool)
    is_first[1:] = piece_row[1:] != piece_row[:-1]
    bounds = np.flatnonzero(is_first)
    row = piece_row[bounds]

    extremes = [beside.submit(_find_least, key, op_first, op_last, bounds) for key in (start, -end)]
    busy = measure_busy(
        op_start=start,
        op_end=end,
        op_first_call=position,
        op_last_call=windows.end_position[position],
        op_owner=call_owner[position],
        call_count=len(call_owner),
        piece_row=np.cumsum(is_first) - 1,
        piece_first=op_first,
        piece_last=op_last,
        first_call=windows.first[row],
        last_call=windows.last_by_end[row],
    )
    first_op, last_op = (extreme.result() for extreme in extremes)
    return pl.DataFrame(
        {
            "row": row,
            "gpu_start_ns": start[first_op],
            "gpu_end_ns": end[last_op],
            "busy_ns": busy,
            "call_count": np.add.reduceat(call_size, bounds),
            "op_count": np.add.reduceat(op_last - op_first, bounds),
            "first_op": name[first_op],
            "last_op": name[last_op],
        }
    )


def _find_least(key: Int64s, op_first: Int64s, op_last: Int64s, bounds: Int64s) -> Int64s:
    """Per row, its operation with the least key; of several the first."""
    order = np.argsort(key, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return order[np.minimum.reduceat(find_minimum(rank, op_first, op_last), bounds)]
