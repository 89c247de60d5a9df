"""Projection of ranges onto the operations of each target: a device, or one of its streams."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.columns import add_constants, index_column, index_rows
from nsys_pp.arrays.order import order_by_number
from nsys_pp.arrays.segments import expand_windows, is_every_row
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame, build_nulls, select_columns
from nsys_pp.frames.report import PROJECTIONS
from nsys_pp.projection.busy import measure_busy
from nsys_pp.projection.calls_inside import CallsInside
from nsys_pp.projection.range_minimum import find_minimum

_MEASURED = (
    *("gpu_start_ns", "gpu_end_ns", "busy_ns", "total_ns", "call_count", "op_count"),
    *("first_op", "last_op"),
)
PROJECTED = pl.Schema(  # columns that projection adds to a range: one row per range and target
    {
        "row": pl.Int64(),  # of RANGES
        **{column: PROJECTIONS[column] for column in ("scope", "device_id", "stream_id", *_MEASURED)},
    }
)


class Launched(Struct, frozen=True, kw_only=True):
    """Launched operations: one row per launch, grouped by target."""

    call_row: Int64s
    start: Int64s
    end: Int64s
    op_row: npt.NDArray[np.uint32]  # of GPU_OPS
    target: Int64s  # number of the target, ascending
    targets: list[tuple[int, int | None]]  # device_id and stream_id of each number, ascending


def add_launches(launched: Launched, call_row: Int64s, *, first_row: int) -> Launched:
    """Add copies of launches, in which other calls launched the operations.

    Args:
        launched: Launches.
        call_row: Calls to copy the launches of; call i is replaced by call `first_row + i`.
        first_row: First row of the calls that replace them.
    """
    copy, before = order_by_number(call_row, first_row)
    first, last = before[launched.call_row], before[launched.call_row + 1]
    row = np.repeat(np.arange(len(first)), last - first)
    calls = np.append(launched.call_row, first_row + copy[expand_windows(first, last)])
    of_row = np.append(np.arange(len(first)), row)
    target = launched.target[of_row]
    if len(launched.targets) > 1:
        order = np.argsort(target, kind="stable")
        calls, of_row, target = calls[order], of_row[order], target[order]
    return Launched(
        call_row=calls,
        start=launched.start[of_row],
        end=launched.end[of_row],
        op_row=launched.op_row[of_row],
        target=target,
        targets=launched.targets,
    )


def gather_launched(gpu_ops: pl.DataFrame, launches: pl.DataFrame, *, per_stream: bool) -> Launched:
    """Gather the columns of launched operations that projection needs.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        launches: `LAUNCHES`, at least one row.
        per_stream: The targets are streams, not devices.
    """
    keys = ["process_key", "device_id", *(["stream_id"] if per_stream else [])]
    op_row, call_row = launches["op_id"].to_numpy(), launches["call_row"].to_numpy().astype(np.int64)
    start, end = (gpu_ops[name].to_numpy() for name in ("start_ns", "end_ns"))
    ops = select_columns(gpu_ops, keys)
    if not is_every_row(op_row, len(ops)):
        ops, start, end = index_rows(ops, op_row), start[op_row], end[op_row]
    targets = _list_targets(ops)
    if len(targets) == 1:
        target = np.zeros(len(ops), dtype=np.int64)
    else:
        numbered = targets.with_columns(target=pl.int_range(pl.len(), dtype=pl.Int64))
        target = ops.join(numbered, on=keys, how="left", maintain_order="left")["target"].to_numpy()
        order = np.argsort(target.astype(np.uint16) if len(targets) < 1 << 16 else target, kind="stable")
        columns = (target, op_row, call_row, start, end)
        target, op_row, call_row, start, end = (column[order] for column in columns)
    return Launched(
        call_row=call_row,
        start=start,
        end=end,
        op_row=op_row,
        target=target,
        targets=[(row[1], row[2] if per_stream else None) for row in targets.iter_rows()],
    )


def _list_targets(keys: pl.DataFrame) -> pl.DataFrame:
    """List the distinct targets by device, stream and process; a single one, the usual case, needs no sort."""
    columns = [keys[name].to_numpy() for name in keys.columns]
    if all((column == column[0]).all() for column in columns):
        return keys.head(1)
    return keys.unique().sort(*keys.columns[1:], keys.columns[0])


class _Windows(Struct, frozen=True, kw_only=True):
    """Operations of one target inside ranges: segments of operations in order of their calls' positions."""

    inside: CallsInside
    launch: Int64s  # of each operation: row of `Launched`
    start: Int64s  # of each operation
    end: Int64s
    row: Int64s  # of the ranges with operations: index into the rows of `CallsInside`, ascending
    segment: Int64s | None  # index into the segments of `CallsInside`; None: all
    segment_row: Int64s | None  # index into `row`, ascending; None: one segment a range
    first: Int64s  # operations of each segment
    last: Int64s
    # calls with operations before each position; None: each call has one operation
    calls_before: Int64s | None

    @property
    def position(self) -> Int64s:
        """Return the position of each operation's call."""
        position: Int64s = self.inside.position[self.launch]
        return position

    def sum_by_row(self, values: Int64s) -> Int64s:
        """Sum values of segments by range."""
        if self.segment_row is None:
            return values
        return np.add.reduceat(values, _find_first_segments(self.segment_row))

    def count_calls(self) -> Int64s:
        """Count the calls with operations in each segment."""
        if self.calls_before is None:
            return self.last - self.first
        first, last = self.inside.segment_first, self.inside.segment_last
        if self.segment is not None:
            first, last = first[self.segment], last[self.segment]
        return self.calls_before[last] - self.calls_before[first]


def _find_first_segments(segment_row: Int64s) -> Int64s:
    return np.flatnonzero(np.diff(segment_row, prepend=-1))


def project_onto_targets(
    calls_inside: CallsInside, launched: Launched, names: pl.Series | None
) -> list[pl.DataFrame]:
    """Project ranges onto the operations of every target.

    Args:
        calls_inside: Calls inside the ranges.
        launched: Operations that the calls launched.
        names: Of all operations, by row of GPU_OPS; None: without first_op and last_op.

    Returns:
        `PROJECTED` of each target that a range reached, by row.
    """
    parts: list[pl.DataFrame] = []
    if not len(calls_inside.segment_row):
        return parts
    bounds = np.searchsorted(launched.target, np.arange(len(launched.targets) + 1)).tolist()
    for (device_id, stream_id), first, last in zip(launched.targets, bounds[:-1], bounds[1:], strict=True):
        windows = _find_op_windows(calls_inside, launched, first, last)
        if not len(windows.row):
            continue
        columns = [
            *(pl.Series(name, values, PROJECTED[name]) for name, values in _measure(windows).items()),
            *_describe_ends(windows, launched, names),
            _name_scopes(windows),
        ]
        target = {"device_id": device_id, "stream_id": stream_id}
        constants = [
            build_nulls(name, PROJECTED[name], 1)
            if value is None
            else pl.Series(name, np.array([value], dtype=np.int64), PROJECTED[name])
            for name, value in target.items()
        ]
        projected = add_constants(build_frame(columns), constants)
        parts.append(select_columns(projected, (name for name in PROJECTED if name in projected.columns)))
    return parts


def _find_op_windows(calls_inside: CallsInside, launched: Launched, begin: int, stop: int) -> _Windows:
    """Find the operations inside ranges among the launches `[begin, stop)`."""
    call_count = calls_inside.call_count
    order, ops_before = order_by_number(calls_inside.position[begin:stop], call_count)
    launch = order + begin if begin else order
    first, last, row = calls_inside.segment_first, calls_inside.segment_last, calls_inside.segment_row
    segment, calls_before = None, None
    if not is_every_row(ops_before, len(order) + 1):
        calls_before = np.concatenate([[0], np.cumsum(np.diff(ops_before) > 0)])
        first, last = ops_before[first], ops_before[last]
        is_hit = last > first
        if not is_hit.all():
            segment = np.flatnonzero(is_hit)
            first, last, row = first[segment], last[segment], row[segment]
    segment_row = None
    is_first = row[1:] != row[:-1]
    if not is_first.all():
        is_first = np.append(True, is_first)
        row, segment_row = row[is_first], np.cumsum(is_first) - 1
    return _Windows(
        inside=calls_inside,
        launch=launch,
        start=launched.start[launch],
        end=launched.end[launch],
        row=row,
        segment=segment,
        segment_row=segment_row,
        first=first,
        last=last,
        calls_before=calls_before,
    )


def _describe_ends(windows: _Windows, launched: Launched, names: pl.Series | None) -> list[pl.Series]:
    """Describe the first and the last operation of each range: start and end, and their names if there are names."""
    first_op = _find_extreme_op(windows.start, windows)
    last_op = _find_extreme_op(-windows.end, windows)
    columns = [
        pl.Series("gpu_start_ns", windows.start[first_op]),
        pl.Series("gpu_end_ns", windows.end[last_op]),
    ]
    if names is not None:
        of_names = zip(("first_op", "last_op"), (first_op, last_op), strict=True)
        columns += [
            index_column(names, launched.op_row[windows.launch[op]]).alias(name) for name, op in of_names
        ]
    return columns


def _measure(windows: _Windows) -> dict[str, Int64s]:
    """Measure the ranges: columns of `PROJECTED`."""
    busy = _measure_busy(windows)
    total = np.zeros(len(windows.start) + 1, dtype=np.int64)
    np.subtract(windows.end, windows.start, out=total[1:])
    np.cumsum(total, out=total)
    total_of_row = windows.sum_by_row(total[windows.last] - total[windows.first])
    del total
    op_count = windows.sum_by_row(windows.last - windows.first)
    is_all = is_every_row(windows.row, len(windows.inside.rows))
    return {
        "row": windows.inside.rows if is_all else windows.inside.rows[windows.row],
        "busy_ns": busy,
        "total_ns": total_of_row,
        "call_count": op_count if windows.calls_before is None else windows.sum_by_row(windows.count_calls()),
        "op_count": op_count,
    }


def _measure_busy(windows: _Windows) -> Int64s:
    """Measure the union of the operations of each range."""
    inside, position = windows.inside, windows.position
    end_position, segment_row = inside.windows.end_position, windows.segment_row
    return measure_busy(
        op_start=windows.start,
        op_end=windows.end,
        op_call_by_start=position,
        op_call_by_end=position if end_position is None else end_position[position],
        op_owner=inside.number_owners()[position],
        call_count=inside.call_count,
        segment_row=np.arange(len(windows.first)) if segment_row is None else segment_row,
        segment_first=windows.first,
        segment_last=windows.last,
        first_by_start=inside.windows.first[windows.row],
        last_by_end=inside.windows.last_by_end[windows.row],
    )


@cache
def _list_scopes(scope: str) -> pl.Series:
    return pl.Series("scope", [scope, "process"], dtype=PROJECTED["scope"])


def _name_scopes(windows: _Windows) -> pl.Series:
    """Name the scope of each row: "process" for rows with calls of other threads."""
    inside = windows.inside
    names = _list_scopes(inside.scope)
    if not inside.is_waited.any():
        return names.new_from_index(0, len(windows.row))
    before = np.concatenate([[0], np.cumsum(inside.is_waited[windows.position])])
    is_waited = windows.sum_by_row(before[windows.last] - before[windows.first]) > 0
    return index_column(names, is_waited.astype(np.uint32))


def _find_extreme_op(key: Int64s, windows: _Windows) -> Int64s:
    """Find the operation with the smallest key per range; the first one of equals.

    Key and index of an operation are packed into one number, so that a minimum yields both.
    """
    bits = len(key).bit_length()
    least = int(key.min())
    is_wide = (int(key.max()) - least) >> (62 - bits) > 0
    rank = np.unique(key, return_inverse=True)[1] if is_wide else key - least
    minimum = find_minimum(rank << bits | np.arange(len(key)), windows.first, windows.last)
    if windows.segment_row is not None:
        minimum = np.minimum.reduceat(minimum, _find_first_segments(windows.segment_row))
    return minimum & ((1 << bits) - 1)
