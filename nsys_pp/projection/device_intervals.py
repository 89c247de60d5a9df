"""Projection of ranges onto the operations of each target: a device, or one of its streams."""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.arrays.types import Bools, Int64s
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
    name: pl.Series
    target: Int64s  # number of the target, ascending
    targets: list[tuple[int, int | None]]  # device_id and stream_id of each number, ascending


def add_launches(launched: Launched, call_row: Int64s, *, first_row: int) -> Launched:
    """Add copies of launches, in which other calls launched the operations.

    Args:
        launched: Launches.
        call_row: Calls to copy the launches of; call i is replaced by call `first_row + i`.
        first_row: First row of the calls that replace them.
    """
    copies = pl.DataFrame({"call_row": call_row}).with_row_index("copy")
    pairs = pl.DataFrame({"call_row": launched.call_row}).with_row_index("row").join(copies, on="call_row")
    row, copy = pairs["row"].to_numpy(), pairs["copy"].to_numpy()
    target = np.append(launched.target, launched.target[row])
    order = np.argsort(target, kind="stable")
    of_row = np.append(np.arange(len(launched.call_row)), row)[order]
    return Launched(
        call_row=np.append(launched.call_row, first_row + copy.astype(np.int64))[order],
        start=launched.start[of_row],
        end=launched.end[of_row],
        name=launched.name[of_row],
        target=target[order],
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
    ops = gpu_ops[[*keys, "start_ns", "end_ns", "name"]][launches["op_id"]]
    targets = _list_targets(ops[keys])
    call_row = launches["call_row"].cast(pl.Int64).to_numpy()
    if len(targets) == 1:
        target = np.zeros(len(ops), dtype=np.int64)
    else:
        numbered = targets.with_columns(target=pl.int_range(pl.len(), dtype=pl.Int64))
        target = ops.join(numbered, on=keys, how="left", maintain_order="left")["target"].to_numpy()
        order = np.argsort(target.astype(np.uint16) if len(targets) < 1 << 16 else target, kind="stable")
        target, call_row, ops = target[order], call_row[order], ops[order]
    return Launched(
        call_row=call_row,
        start=ops["start_ns"].to_numpy(),
        end=ops["end_ns"].to_numpy(),
        name=ops["name"],
        target=target,
        targets=[(row[1], row[2] if per_stream else None) for row in targets.iter_rows()],
    )


def _list_targets(keys: pl.DataFrame) -> pl.DataFrame:
    """List the distinct targets by device, stream and process; a single one, the usual case, needs no sort."""
    columns = [keys[name].to_numpy() for name in keys.columns]
    if all((column == column[0]).all() for column in columns):
        return keys.head(1)
    return keys.unique().sort(*keys.columns[1:], keys.columns[0])


def project_onto_targets(
    calls_inside: CallsInside, launched: Launched, threads: Executor
) -> list[pl.DataFrame]:
    """Project ranges onto the operations of every target.

    Args:
        calls_inside: Calls inside the ranges.
        launched: Operations that the calls launched.
        threads: Executor for parts of the work that can run concurrently.

    Returns:
        `PROJECTED` of each target that a range reached, by row.
    """
    parts: list[pl.DataFrame] = []
    if not len(calls_inside.segment_row):
        return parts
    bounds = np.searchsorted(launched.target, np.arange(len(launched.targets) + 1)).tolist()
    for (device_id, stream_id), first, last in zip(launched.targets, bounds[:-1], bounds[1:], strict=True):
        at, start, end = (
            calls_inside.position[first:last],
            launched.start[first:last],
            launched.end[first:last],
        )
        name = launched.name[first:last]
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at, kind="stable")
            at, start, end, name = at[order], start[order], end[order], name[order]
        part = _project_onto_target(calls_inside, at, start, end, name, threads)
        if part is not None:
            keys = {"device_id": device_id, "stream_id": stream_id}
            constants = [
                pl.Series(key, [value], PROJECTED[key]).new_from_index(0, len(part))
                for key, value in keys.items()
            ]
            parts.append(part.hstack(constants)[PROJECTED.names()])
    return parts


def _project_onto_target(
    calls_inside: CallsInside,
    position: Int64s,
    start: Int64s,
    end: Int64s,
    name: pl.Series,
    threads: Executor,
) -> pl.DataFrame | None:
    """Project ranges onto the operations of one target, in order of their calls' positions."""
    per_call = np.bincount(position, minlength=len(calls_inside.call_owner))
    ops_before = np.concatenate([[0], np.cumsum(per_call)])
    op_first, op_last = ops_before[calls_inside.segment_first], ops_before[calls_inside.segment_last]
    hit = np.flatnonzero(op_last > op_first)
    if not len(hit):
        return None
    op_first, op_last, segment_row = op_first[hit], op_last[hit], calls_inside.segment_row[hit]
    is_first = np.ones(len(hit), dtype=bool)
    is_first[1:] = segment_row[1:] != segment_row[:-1]
    bounds = np.flatnonzero(is_first)
    row = segment_row[bounds]

    extremes = [threads.submit(_find_extreme_op, key, op_first, op_last, bounds) for key in (start, -end)]
    busy = measure_busy(
        op_start=start,
        op_end=end,
        op_call_by_start=position,
        op_call_by_end=calls_inside.windows.end_position[position],
        op_owner=calls_inside.call_owner[position],
        call_count=len(calls_inside.call_owner),
        segment_row=np.cumsum(is_first) - 1,
        segment_first=op_first,
        segment_last=op_last,
        first_by_start=calls_inside.windows.first[row],
        last_by_end=calls_inside.windows.last_by_end[row],
    )
    total = np.concatenate([[0], np.cumsum(end - start)])
    calls_before = np.concatenate([[0], np.cumsum(per_call > 0)])
    call_count = calls_before[calls_inside.segment_last[hit]] - calls_before[calls_inside.segment_first[hit]]
    waited_before = np.concatenate([[0], np.cumsum(calls_inside.is_waited[position])])
    is_waited = np.add.reduceat(waited_before[op_last] - waited_before[op_first], bounds) > 0
    first_op, last_op = (extreme.result() for extreme in extremes)
    return pl.DataFrame(
        {
            "scope": _name_scopes(calls_inside.scope, is_waited),
            "row": calls_inside.rows[row],
            "gpu_start_ns": start[first_op],
            "gpu_end_ns": end[last_op],
            "busy_ns": busy,
            "total_ns": np.add.reduceat(total[op_last] - total[op_first], bounds),
            "call_count": np.add.reduceat(call_count, bounds),
            "op_count": np.add.reduceat(op_last - op_first, bounds),
            "first_op": name[first_op],
            "last_op": name[last_op],
        }
    )


def _name_scopes(scope: str, is_waited: Bools) -> pl.Series:
    """Name the scope of each row: "process" for rows with calls of other threads."""
    names = pl.Series([scope, "process"], dtype=PROJECTED["scope"])
    return names[is_waited.astype(np.uint32)]


def _find_extreme_op(key: Int64s, op_first: Int64s, op_last: Int64s, bounds: Int64s) -> Int64s:
    """Find the operation with the smallest key per row; the first one of equals.

    Key and index of an operation are packed into one number, so that a minimum yields both.
    """
    bits = len(key).bit_length()
    least = int(key.min())
    is_wide = (int(key.max()) - least) >> (62 - bits) > 0
    rank = np.unique(key, return_inverse=True)[1] if is_wide else key - least
    packed = rank << bits | np.arange(len(key))
    return np.minimum.reduceat(find_minimum(packed, op_first, op_last), bounds) & ((1 << bits) - 1)
