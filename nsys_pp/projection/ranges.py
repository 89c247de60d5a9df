"""Projection of CPU ranges onto the GPU operations that they launched.

thread   [ step                    )
            [ forward )
              ^ launch    ^ launch
stream             [ gemm )   [ adam )     forward -> gemm; step -> gemm start .. adam end

A large report is projected piece by piece (ranges within a window of time, and the calls and launches that
can be inside them): some two hundred bytes for each launch and range are then memory for one piece. Ranges
that begin in one window and end in another are a piece of their own, with all calls during any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nsys_pp.arrays.columns import (
    gather,
    has_value,
    index_rows,
    is_among,
    keep_rows,
    list_distinct,
    mark_rows,
    pick,
)
from nsys_pp.arrays.intervals import find_parents
from nsys_pp.arrays.types import Bools, Int64s
from nsys_pp.frames.conform import build_frame, build_schema, conform
from nsys_pp.frames.raw import build_row_counts, list_counts
from nsys_pp.frames.report import KERNEL_KINDS, PROJECTIONS
from nsys_pp.projection.launches import find_launch_devices, match_launches
from nsys_pp.projection.measure import (
    PROJECTED,
    Launched,
    add_launches,
    gather_launched,
    project_onto_targets,
)
from nsys_pp.projection.waited_calls import Waited, WaitedCalls, find_waited_calls
from nsys_pp.projection.windows import find_calls_inside, find_without_calls, order_calls

_PIECE_ROWS = 1_000_000
_MOST_WINDOWS = 64
_SAMPLED = 4096
_COLUMNS = ["process_key", "thread_key", "start_ns", "end_ns"]


class Piece(Struct, frozen=True, kw_only=True):
    """Rows of a report that are projected together."""

    rows: Int64s  # of RANGES, ascending
    ranges: pl.DataFrame  # RANGES of these rows: process, thread, start and end
    api_calls: pl.DataFrame  # API_CALLS, in order: process, thread, start and end
    launches: pl.DataFrame  # LAUNCHES, at least one, by row of these calls
    waited: Waited | None  # by row of these calls


def split_pieces(
    ranges: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame, waited: Waited | None
) -> Iterator[Piece]:
    """Split a report into pieces; each range is in one of them, unless no launch can be inside it.

    Args:
        ranges: `RANGES`, by range_id.
        api_calls: `API_CALLS`, any order.
        launches: `LAUNCHES` that count.
        waited: Calls that threads waited for, by all ranges; None: none count.
    """
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    call_start, call_row = api_calls["start_ns"].to_numpy(), launches["call_row"].to_numpy()
    # between windows in which about as many ranges begin
    sample = np.sort(start[:: max(1, len(start) // _SAMPLED)])
    count = min(_MOST_WINDOWS, -(-len(start) // _PIECE_ROWS))
    bounds = list_distinct(sample[np.arange(1, count) * len(sample) // count])
    window = _number_windows(start, bounds)
    is_across = window != _number_windows(end, bounds)
    window[is_across] = _MOST_WINDOWS  # the number of no window
    window_of_call = _number_windows(call_start, bounds)
    of_windows = ((window == number, window_of_call == number) for number in range(len(bounds) + 1))
    across = (is_across, _is_during_any(call_start, start[is_across], end[is_across]))
    position = np.zeros(len(api_calls), dtype=np.uint32)  # of each call in its piece
    for is_inside, is_chosen in chain(of_windows, [across]):
        rows, of_calls, of_launches = map(np.flatnonzero, (is_inside, is_chosen, is_chosen[call_row]))
        if not (len(rows) and len(of_launches)):
            continue
        position[of_calls] = np.arange(len(of_calls), dtype=np.uint32)
        of_piece = _gather(launches, of_launches)
        yield Piece(
            rows=rows,
            ranges=_gather(ranges[_COLUMNS], rows),
            api_calls=_gather(api_calls[_COLUMNS], of_calls),
            launches=of_piece.with_columns(pl.Series("call_row", position[of_piece["call_row"].to_numpy()])),
            waited=None if waited is None else _choose_waited(waited, position, is_chosen),
        )


def _number_windows(times: Int64s, bounds: Int64s) -> NDArray[np.uint8]:
    """Number the window of each time: the bounds at or before it.

    It takes a pass for each bound, which numpy does at once.
    """
    number = np.zeros(len(times), dtype=np.uint8)
    for bound in bounds:
        number += times >= bound
    return number


def _is_during_any(times: Int64s, start: Int64s, end: Int64s) -> Bools:
    """Return the mask of times within any of some intervals, both ends included."""
    if not len(start):
        return np.zeros(len(times), dtype=np.bool_)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.searchsorted(start, times, side="right") - 1
    return (before >= 0) & (times <= reach[np.maximum(before, 0)])


def _choose_waited(waited: Waited, position: NDArray[np.uint32], is_chosen: Bools) -> Waited:
    certain, possible = (
        replace(calls, call_row=position[calls.call_row].astype(np.int64))
        for calls in waited.select(is_chosen)
    )
    return Waited(certain=certain, possible=possible)


def _gather(frame: pl.DataFrame, rows: Int64s) -> pl.DataFrame:
    """Gather rows, without a copy if they are contiguous."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return frame.slice(int(rows[0]), len(rows))
    return frame[rows]


Scope = Literal["thread", "process", "auto"]

OPS: dict[str, tuple[str, ...]] = {
    # Value of --ops -> kinds of operation that count.
    "kernel": KERNEL_KINDS,
    "memcpy": ("memcpy",),
    "memset": ("memset",),
}

COMPUTED = build_schema(
    {  # interval of a range's compute on a device: one row per range and device, sorted by both
        name: PROJECTIONS[name]
        for name in ("range_id", "device_id", "gpu_start_ns", "gpu_end_ns", "busy_ns", "scope")
    },
    name="COMPUTED",
)


def parse_ops(text: str) -> tuple[str, ...]:
    """Parse a list of operation kinds: keys of `OPS` separated by commas, or "all".

    Raises:
        ValueError: A word is not a key of `OPS`.

    >>> parse_ops("kernel,memset"), parse_ops("all")
    (('kernel', 'memset'), ('kernel', 'memcpy', 'memset'))
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return tuple(OPS)
    if unknown := [word for word in words if word not in OPS]:
        raise ValueError(
            f"invalid operations {', '.join(map(repr, unknown))}; expected {', '.join(OPS)} or all"
        )
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
    waited: Waited | None = None,
) -> pl.DataFrame:
    """Project each range onto the interval from the first to the last GPU operation launched inside it.

    A call is inside a range when `range.start <= call.start and call.end <= range.end`, on the
    thread of the range (scope "thread"), or on any thread of its process ("process"). "auto" counts calls of
    the thread and of threads that it waited for (`waited_calls.py`), and of all threads for ranges that end
    on another thread. With all `ops` and scope "thread" the intervals equal those of NVIDIA's
    `nvtx_gpu_proj_trace`.

    Args:
        ranges: `RANGES`, any order.
        api_calls: `API_CALLS`, any order.
        gpu_ops: `GPU_OPS`, in order of op_id.
        ops: Operations that count: keys of `OPS`.
        scope: Scope of the calls that count.
        per_stream: One row per stream instead of one per device.
        launches: `LAUNCHES` of all calls and operations; None: computed by this function.
        waited: Calls that threads waited for, by all ranges of the report; None: by `ranges`.

    Returns:
        `PROJECTIONS`, one row per range and device (and stream) that it reached, by range_id,
        device and stream. Ranges that end on another thread than they begin have no row under
        scope "thread". Empty in, empty out.
    """
    if ranges.is_empty():
        return PROJECTIONS.to_frame()
    is_counted = is_among(gpu_ops["kind"], [kind for name in ops for kind in OPS[name]])
    if launches is None:
        counted = keep_rows(gpu_ops[["op_id", "process_key", "correlation_id"]], is_counted)
        launches = match_launches(api_calls, counted)
    else:
        launches = keep_rows(launches, is_counted[launches["op_id"].to_numpy()])
    if launches.is_empty():
        return PROJECTIONS.to_frame()
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")

    parent_id, depth = _nest(ranges)  # first: it needs as much memory as the projections
    projected = _project_launches(ranges, api_calls, gpu_ops, launches, scope, waited, per_stream=per_stream)
    columns = ranges[
        ["process_key", "thread_key", "range_id", "domain", "name", "start_ns", "end_ns", "is_open"]
    ].hstack([parent_id.alias("parent_id"), pl.Series("depth", depth)])
    columns = index_rows(columns, projected["row"].to_numpy())
    return conform(pl.concat([projected, columns], how="horizontal"), PROJECTIONS)


def project_compute(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    *,
    scope: Scope,
    launches: pl.DataFrame,
    waited: Waited | None = None,
) -> pl.DataFrame:
    """Project each range onto its kernels except communication: the compute interval.

    Args:
        ranges: `RANGES`, any order.
        api_calls: `API_CALLS`, any order.
        gpu_ops: `GPU_OPS`, in order of op_id.
        scope: Scope of the calls that count, as for `project_ranges`.
        launches: `LAUNCHES` of all calls and operations.
        waited: As for `project_ranges`.

    Returns:
        `COMPUTED`, the rows and columns that `project_ranges` would have without communication. Empty in,
        empty out.
    """
    computes = is_among(gpu_ops["kind"], OPS["kernel"]) & ~gpu_ops["is_communication"].to_numpy()
    launches = keep_rows(launches, computes[launches["op_id"].to_numpy()])
    if ranges.is_empty() or launches.is_empty():
        return COMPUTED.to_frame()
    if not ranges["range_id"].is_sorted():
        ranges = ranges.sort("range_id")
    projected = _project_launches(
        ranges, api_calls, gpu_ops, launches, scope, waited, per_stream=False, with_names=False
    )
    range_id = ranges["range_id"].to_numpy()[projected["row"].to_numpy()]
    return projected.hstack([pl.Series("range_id", range_id)])[[*COMPUTED]]


def _project_launches(
    ranges: pl.DataFrame,
    api_calls: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launches: pl.DataFrame,
    scope: Scope,
    waited: Waited | None,
    *,
    per_stream: bool,
    with_names: bool = True,
) -> pl.DataFrame:
    """Project ranges onto their launches (`PROJECTED`, by row and target), large reports piece by piece.

    Without names of operations, first_op and last_op are absent.
    """
    names, crosses = gpu_ops["name"] if with_names else None, has_value(ranges["end_thread_key"])
    if len(ranges) <= 2 * _PIECE_ROWS or len(launches) <= _PIECE_ROWS:
        launched = gather_launched(gpu_ops, launches, per_stream=per_stream)
        return _project(ranges, crosses, api_calls, launched, names, scope, waited)
    if scope == "auto" and waited is None:
        waited = find_waited_calls(
            ranges, api_calls, launches["call_row"].to_numpy(), device=find_launch_devices(gpu_ops, launches)
        )
    parts = []
    for piece in split_pieces(ranges, api_calls, launches, waited if scope == "auto" else None):
        launched = gather_launched(gpu_ops, piece.launches, per_stream=per_stream)
        part = _project(
            piece.ranges, crosses[piece.rows], piece.api_calls, launched, names, scope, piece.waited
        )
        part.replace_column(0, pl.Series("row", piece.rows[part["row"].to_numpy()]))
        if len(part):  # else with all columns of `PROJECTED`
            parts.append(part)
    return _join_parts(parts)


def _project(
    ranges: pl.DataFrame,
    crosses: Bools,
    api_calls: pl.DataFrame,
    launched: Launched,
    names: pl.Series | None,
    scope: Scope,
    waited: Waited | None,
) -> pl.DataFrame:
    """Project ranges onto launched operations (`PROJECTED`, by row and target).

    `crosses` marks cross-thread ranges.
    """
    parts: list[pl.DataFrame] = []
    of_process = np.arange(len(ranges)) if scope == "process" else np.flatnonzero(crosses)
    if scope == "thread":
        inside = find_calls_inside(ranges, np.flatnonzero(~crosses), scope, api_calls, launched.call_row)
        return _join_parts([*project_onto_targets(inside, launched, names)])
    if scope == "auto":
        rows = np.flatnonzero(~crosses)
        ordered = order_calls(api_calls, "thread") if waited is None else None
        if waited is None:
            device = np.array([-1 if target[0] is None else target[0] for target in launched.targets])
            waited = find_waited_calls(
                ranges, api_calls, launched.call_row, device=device[launched.target], ordered=ordered
            )
        for added in waited.select(mark_rows(launched.call_row, len(api_calls))):
            if not len(rows):
                break
            calls, with_waited = _add_waited_calls(api_calls, launched, added)
            inside = find_calls_inside(
                ranges,
                rows,
                "thread",
                calls,
                with_waited.call_row,
                ordered=None if len(calls) > len(api_calls) else ordered,
                waited_from=len(api_calls),
            )
            ordered = None  # used once: its memory is needed
            parts += project_onto_targets(inside, with_waited, names)
            rows = find_without_calls(ranges, inside, calls)
    if len(of_process):
        inside = find_calls_inside(ranges, of_process, "process", api_calls, launched.call_row)
        parts += project_onto_targets(inside, launched, names)
    return _join_parts(parts)


def _add_waited_calls(
    api_calls: pl.DataFrame, launched: Launched, waited: WaitedCalls
) -> tuple[pl.DataFrame, Launched]:
    """Add the calls that threads waited for.

    They become calls of these threads (of `API_CALLS`, the columns of threads), with their launches.
    """
    calls = api_calls[["thread_key", "start_ns", "end_ns"]]
    if not len(waited.thread):
        return calls, launched
    own = [column.to_numpy() for column in calls]
    added = [waited.thread, *(values[waited.call_row] for values in own[1:])]
    joined = build_frame(
        pl.Series(name, np.append(*both)) for name, *both in zip(calls.columns, own, added, strict=True)
    )
    return joined, add_launches(launched, waited.call_row, first_row=len(calls))


def _join_parts(parts: list[pl.DataFrame]) -> pl.DataFrame:
    projected = pl.concat(parts) if parts else PROJECTED.to_frame()
    if projected["row"].is_sorted():  # targets are in order already
        return projected
    return index_rows(projected, np.argsort(projected["row"].to_numpy(), kind="stable"))


def _nest(ranges: pl.DataFrame) -> tuple[pl.Series, NDArray[np.int32]]:
    """Return the parent's range_id (null at the top) and the depth; cross-thread ranges have no parent."""
    rows = np.flatnonzero(~has_value(ranges["end_thread_key"]))
    columns = (ranges[name].to_numpy()[rows] for name in ("thread_key", "start_ns", "end_ns"))
    parent, depth = np.full(len(ranges), -1), np.zeros(len(ranges), dtype=np.int32)
    parent_of_row, depth[rows] = find_parents(*columns)
    parent[rows] = pick(rows, parent_of_row, -1)
    return gather(ranges["range_id"], parent), depth


def count_projected(
    ranges: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    launches: pl.DataFrame,
    projections: pl.DataFrame | None,
    scope: Scope,
) -> pl.DataFrame:
    """Count the ranges that were projected and the operations that a call launched.

    Args:
        ranges: `RANGES`.
        gpu_ops: `GPU_OPS`.
        launches: `LAUNCHES` of all operations.
        projections: `PROJECTIONS` of the ranges; None: they were not projected, and are not counted.
        scope: Launches that counted.

    Returns:
        `ROW_COUNTS` of stage "projection", of the tables "ranges" and "gpu_ops".
    """
    rows = []
    if projections is not None:
        crossing = ranges["end_thread_key"].count() if scope == "thread" else 0
        without = len(ranges) - _count_distinct(projections["range_id"]) - crossing
        reasons = {
            "end on another thread than they began (scope thread)": crossing,
            "launched no GPU operation that counts": without,
        }
        rows += [*list_counts("projection", "ranges", len(ranges), reasons)]
    reasons = {"without the CUDA call that launched them": len(gpu_ops) - _count_distinct(launches["op_id"])}
    return build_row_counts([*rows, *list_counts("projection", "gpu_ops", len(gpu_ops), reasons)])


def _count_distinct(ids: pl.Series) -> int:
    """Count the distinct values of a sorted column without nulls."""
    return int(np.count_nonzero(np.diff(ids.to_numpy()))) + 1 if len(ids) else 0
