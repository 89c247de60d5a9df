"""Ranges onto the operations of each place they reached: a device, or a stream of it."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.report import PROJECTIONS
from nsys_pp.projection.busy import measure_busy
from nsys_pp.projection.extremes import find_minimum
from nsys_pp.projection.inside import Inside

_MEASURED = (
    *("gpu_start_ns", "gpu_end_ns", "busy_ns", "total_ns", "call_count", "op_count"),
    *("first_op", "last_op"),
)
PROJECTED = pl.Schema(  # what projection adds to a range: one row per range and place
    {
        "row": pl.Int64(),  # of RANGES
        **{column: PROJECTIONS[column] for column in ("scope", "device_id", "stream_id", *_MEASURED)},
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Operations that have a call, one row per launch, those of one place together."""

    call_row: Int64s
    start: Int64s
    end: Int64s
    name: pl.Series
    place: Int64s  # number of the place, ascending
    places: list[tuple[int, int | None]]  # device_id and stream_id of each number, ascending


def gather_launched(gpu_ops: pl.DataFrame, launches: pl.DataFrame, *, per_stream: bool) -> Launched:
    """Gather what projection needs of the launched operations.

    Args:
        gpu_ops: `GPU_OPS`, in order of op_id.
        launches: `LAUNCHES`, at least one row.
        per_stream: A place is a stream, not a device.
    """
    keys = ["process_key", "device_id", *(["stream_id"] if per_stream else [])]
    ops = gpu_ops[[*keys, "start_ns", "end_ns", "name"]][launches["op_id"]]
    places = _list_places(ops[keys])
    call_row = launches["call_row"].cast(pl.Int64).to_numpy()
    if len(places) == 1:
        place = np.zeros(len(ops), dtype=np.int64)
    else:
        numbered = places.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64))
        place = ops.join(numbered, on=keys, how="left", maintain_order="left")["place"].to_numpy()
        order = np.argsort(place.astype(np.uint16) if len(places) < 1 << 16 else place, kind="stable")
        place, call_row, ops = place[order], call_row[order], ops[order]
    return Launched(
        call_row=call_row,
        start=ops["start_ns"].to_numpy(),
        end=ops["end_ns"].to_numpy(),
        name=ops["name"],
        place=place,
        places=[(row[1], row[2] if per_stream else None) for row in places.iter_rows()],
    )


def _list_places(keys: pl.DataFrame) -> pl.DataFrame:
    """List the different rows, by device, stream and process; mostly there is one, which is seen sooner than sorted."""
    columns = [keys[name].to_numpy() for name in keys.columns]
    if all((column == column[0]).all() for column in columns):
        return keys.head(1)
    return keys.unique().sort(*keys.columns[1:], keys.columns[0])


def project_places(inside: Inside, launched: Launched, beside: Executor) -> list[pl.DataFrame]:
    """Project ranges onto every place that they reached.

    Args:
        inside: Which calls lie inside the ranges.
        launched: What the calls launched.
        beside: Where parts of the work run at the same time.

    Returns:
        `PROJECTED` of each place that some reached, by row.
    """
    parts: list[pl.DataFrame] = []
    if not len(inside.piece_row):
        return parts
    bounds = np.searchsorted(launched.place, np.arange(len(launched.places) + 1)).tolist()
    for (device_id, stream_id), first, last in zip(launched.places, bounds[:-1], bounds[1:], strict=True):
        at, start, end = inside.position[first:last], launched.start[first:last], launched.end[first:last]
        name = launched.name[first:last]
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at, kind="stable")
            at, start, end, name = at[order], start[order], end[order], name[order]
        part = _project_place(inside, at, start, end, name, beside)
        if part is not None:
            told = {"scope": inside.scope, "device_id": device_id, "stream_id": stream_id}
            same = [
                pl.Series(key, [value], PROJECTED[key]).new_from_index(0, len(part))
                for key, value in told.items()
            ]
            parts.append(part.hstack(same)[PROJECTED.names()])
    return parts


def _project_place(
    inside: Inside, position: Int64s, start: Int64s, end: Int64s, name: pl.Series, beside: Executor
) -> pl.DataFrame | None:
    """Project the ranges onto the operations of one place, in order of their calls' positions."""
    per_call = np.bincount(position, minlength=len(inside.call_owner))
    ops_before = np.concatenate([[0], np.cumsum(per_call)])
    op_first, op_last = ops_before[inside.piece_first], ops_before[inside.piece_last]
    hit = np.flatnonzero(op_last > op_first)
    if not len(hit):
        return None
    op_first, op_last, piece_row = op_first[hit], op_last[hit], inside.piece_row[hit]
    is_first = np.ones(len(hit), dtype=bool)
    is_first[1:] = piece_row[1:] != piece_row[:-1]
    bounds = np.flatnonzero(is_first)
    row = piece_row[bounds]

    extremes = [beside.submit(_find_least, key, op_first, op_last, bounds) for key in (start, -end)]
    busy = measure_busy(
        op_start=start,
        op_end=end,
        op_first_call=position,
        op_last_call=inside.windows.end_position[position],
        op_owner=inside.call_owner[position],
        call_count=len(inside.call_owner),
        piece_row=np.cumsum(is_first) - 1,
        piece_first=op_first,
        piece_last=op_last,
        first_call=inside.windows.first[row],
        last_call=inside.windows.last_by_end[row],
    )
    total = np.concatenate([[0], np.cumsum(end - start)])
    calls_before = np.concatenate([[0], np.cumsum(per_call > 0)])
    call_count = calls_before[inside.piece_last[hit]] - calls_before[inside.piece_first[hit]]
    first_op, last_op = (extreme.result() for extreme in extremes)
    return pl.DataFrame(
        {
            "row": inside.rows[row],
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


def _find_least(key: Int64s, op_first: Int64s, op_last: Int64s, bounds: Int64s) -> Int64s:
    """Per row, its operation with the least key; of several the first.

    Key and place of an operation are one number, so that the least number says both.
    """
    bits = len(key).bit_length()
    least = int(key.min())
    is_wide = (int(key.max()) - least) >> (62 - bits) > 0
    rank = np.unique(key, return_inverse=True)[1] if is_wide else key - least
    packed = rank << bits | np.arange(len(key))
    return np.minimum.reduceat(find_minimum(packed, op_first, op_last), bounds) & ((1 << bits) - 1)
