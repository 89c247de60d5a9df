"""Slices of ranges, operations and API calls (name, color, arguments), and their split into subtracks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import numbers
from nsys_pp.arrays.order import sort_rows
from nsys_pp.arrays.search import find_rows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.op_details import OpDetails
from nsys_pp.frames.report import OP_KIND
from nsys_pp.write.trace.drawing import SlicePart, TrackSlices
from nsys_pp.write.trace.packing import nest_order, pack_flat, pack_nested

Tracks = Sequence[Int64s] | None
Build = Callable[[pl.DataFrame], pl.DataFrame]
_KIND_COLORS = {"memcpy": "copy", "memset": "memset", "graph": "graph"}


def range_slices(projections: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of projected ranges (`PROJECTIONS`)."""
    interval = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    return projections.select(
        start_ns="gpu_start_ns",
        end_ns="gpu_end_ns",
        name=_named("name"),
        color=_no_color(),
        flow_id=_no_flow(),
        domain="domain",
        cpu_start_ns="start_ns",
        cpu_duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        calls="call_count",
        operations="op_count",
        busy_ns="busy_ns",
        busy_percent=pl.when(interval > 0).then((100 * pl.col("busy_ns") / interval).round(1)),
        first_operation="first_op",
        last_operation="last_op",
        scope=pl.col("scope").cast(pl.Categorical()),
        is_open=pl.when("is_open").then(pl.lit(True)),
        range_id="range_id",
    )


def operation_slices(gpu_ops: pl.DataFrame, op_details: OpDetails) -> pl.DataFrame:
    """Build the slices of GPU operations (`GPU_OPS` with `flow_id`); if details were read, they are arguments."""
    color_of = pl.Series([_KIND_COLORS.get(kind) for kind in OP_KIND.categories], dtype=pl.Categorical())
    color = color_of.gather(gpu_ops["kind"].to_physical())
    slices = gpu_ops.select(
        "start_ns",
        "end_ns",
        name=_named("name"),
        color=pl.when("is_communication")
        .then(pl.lit("communication").cast(pl.Categorical()))
        .otherwise(color),
        flow_id="flow_id",
        correlation_id="correlation_id",
        graph_id="graph_id",
    )
    if not len(op_details.row):
        return slices
    return pl.concat([slices, op_details.expand(gpu_ops["op_id"])], how="horizontal")


def cpu_range_slices(ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of ranges on the CPU (`RANGES`)."""
    return ranges.select(
        "start_ns",
        "end_ns",
        name=_named("name"),
        color=_no_color(),
        flow_id=_no_flow(),
        domain="domain",
        category="category",
        payload=pl.col("payload").cast(pl.Categorical()),
        is_open=pl.when("is_open").then(pl.lit(True)),
        range_id="range_id",
    )


def api_call_slices(api_calls: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of API calls (`API_CALLS` with `flow_id`)."""
    return api_calls.select(
        "start_ns",
        "end_ns",
        name=_named("name"),
        color=_no_color(),
        flow_id="flow_id",
        correlation_id="correlation_id",
    )


def flat_subtracks(
    source: pl.DataFrame, tracks: Tracks = None, *, build: Build | None = None
) -> Iterator[tuple[int, int, SlicePart]]:
    """Split slices into subtracks without overlap.

    Args:
        source: Slices of all tracks, or rows to build them from, with `start_ns` and `end_ns`.
        tracks: Rows of the slices of each track, at least one; None: all slices are of one track.
        build: Builds the slices of rows of `source`; None: they are slices.

    Yields:
        Index of the track, number of the subtrack, its `SLICES` (with arguments).
    """
    start, end = source["start_ns"].to_numpy(), source["end_ns"].to_numpy()
    for track, rows in enumerate(_list_rows(source, tracks)):
        subtrack = pack_flat(start[rows], end[rows])
        order = sort_rows(subtrack, start[rows], end[rows])
        depth = np.zeros(len(rows), dtype=np.int32)
        slices = TrackSlices(
            source, rows[order].astype(np.uint32), depth, build=build or _as_slices, start_ns="start_ns"
        )
        yield from _cut(track, slices, subtrack[order])


def nested_subtracks(
    source: pl.DataFrame,
    parent: Int64s,
    tracks: Tracks = None,
    *,
    build: Build | None = None,
    times: tuple[str, str] = ("start_ns", "end_ns"),
) -> Iterator[tuple[int, int, SlicePart]]:
    """Split slices into subtracks of nested slices, like `flat_subtracks`.

    Args:
        source: As for `flat_subtracks`.
        parent: Row of the slice around each slice, or -1; a parent on another track is none.
        tracks: As for `flat_subtracks`.
        build: As for `flat_subtracks`.
        times: Columns of `source` with the starts and ends of the slices.
    """
    start, end = (source[column].to_numpy() for column in times)
    place = np.full(len(source) + 1, -1)
    for track, rows in enumerate(_list_rows(source, tracks)):
        place[rows] = np.arange(len(rows))
        subtrack, above = pack_nested(start[rows], end[rows], place[parent[rows]])
        place[rows] = -1
        order, depth = nest_order(start[rows], end[rows], subtrack, above)
        slices = TrackSlices(
            source,
            rows[order].astype(np.uint32),
            depth[order].astype(np.int32),
            build=build or _as_slices,
            start_ns=times[0],
        )
        yield from _cut(track, slices, subtrack[order])


def find_parent_rows(frame: pl.DataFrame) -> Int64s:
    """Return the row of each range's parent; -1 if the parent is not in the frame."""
    return find_rows(numbers(frame["range_id"]), numbers(frame["parent_id"]))


def _list_rows(source: pl.DataFrame, tracks: Tracks) -> Sequence[Int64s]:
    if tracks is not None:
        return tracks
    return [np.arange(len(source))] if len(source) else []


def _cut(track: int, slices: TrackSlices, subtrack: Int64s) -> Iterator[tuple[int, int, SlicePart]]:
    """Cut the slices of a track into subtracks."""
    for number, (first, stop) in enumerate(pairwise(_find_bounds(subtrack).tolist())):
        yield track, number, SlicePart(slices, first, stop)


def _as_slices(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def _find_bounds(subtrack: Int64s) -> Int64s:
    """Return the first row of each subtrack, and the number of rows; subtracks ascend from 0 without a gap."""
    return np.concatenate([np.flatnonzero(np.diff(subtrack, prepend=-1)), [len(subtrack)]])


def _named(column: str) -> pl.Expr:
    return pl.col(column).fill_null("(no name)")


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())


def _no_flow() -> pl.Expr:
    return pl.lit(None, dtype=pl.UInt64)
