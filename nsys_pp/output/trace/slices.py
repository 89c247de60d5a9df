"""Slices of ranges, operations and API calls (name, color, arguments), and their split into subtracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.columns import add_constants, clear_values, gather, index_rows, numbers
from nsys_pp.arrays.search import find_rows, sort_rows
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.columns import build_frame, build_nulls
from nsys_pp.frames.names import NO_NAME
from nsys_pp.frames.report import OP_KIND, OpDetails
from nsys_pp.frames.training import JOB_KINDS
from nsys_pp.output.trace.drawing import ArrangedSlices
from nsys_pp.output.trace.packing import nest_order, pack_flat, pack_nested

Tracks = Sequence[Int64s] | None
_NO_FLOW = pl.Series("flow_id", [None], dtype=pl.UInt64)
_KIND_COLORS = {"memcpy": "copy", "memset": "memset", "graph": "graph"}


def range_slices(projections: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of projected ranges (`PROJECTIONS`), with `parent`.

    Row of the slice around each, or -1.

    Ranges of `job_ranges` (`JOB_RANGES`) have the color of their kind of job.
    """
    columns = {
        "start_ns": projections["gpu_start_ns"],
        "end_ns": projections["gpu_end_ns"],
        "parent": _parent_rows(projections),
        "name": _named(projections["name"]),
        "color": _color_jobs(projections, job_ranges),
        "domain": projections["domain"],
        "cpu_start_ns": projections["start_ns"],
        "cpu_duration_ns": projections["end_ns"] - projections["start_ns"],
        "calls": projections["call_count"],
        "operations": projections["op_count"],
        "busy_ns": projections["busy_ns"],
        "busy_percent": _measure_busy(projections),
        "first_operation": projections["first_op"],
        "last_operation": projections["last_op"],
        "scope": projections["scope"].cast(pl.Categorical()),
        "is_open": clear_values(projections["is_open"], ~projections["is_open"].to_numpy()),
        "range_id": projections["range_id"],
    }
    slices = build_frame(column.alias(name) for name, column in columns.items())
    return add_constants(slices, [_NO_FLOW])


def _measure_busy(projections: pl.DataFrame) -> pl.Series:
    """Measure the busy part of each range on the GPU, in percent; null for a range without length."""
    busy, start, end = (projections[name].to_numpy() for name in ("busy_ns", "gpu_start_ns", "gpu_end_ns"))
    has_length = end > start
    percent = pl.Series("", np.round(100 * busy / np.where(has_length, end - start, 1), 1))
    return percent if has_length.all() else clear_values(percent, ~has_length)


@cache
def _list_colors() -> pl.Series:
    """List the color of each kind of operation, and of communication at last."""
    colors = [*map(_KIND_COLORS.get, OP_KIND.categories.to_list()), "communication"]
    return pl.Series("color", colors, dtype=pl.Categorical())


def operation_slices(gpu_ops: pl.DataFrame, op_details: OpDetails) -> pl.DataFrame:
    """Build the slices of GPU operations (`GPU_OPS` with `flow_id`).

    If details were read, they are arguments.
    """
    colors = _list_colors()
    color = numbers(gpu_ops["kind"])
    color[gpu_ops["is_communication"].to_numpy()] = len(colors) - 1
    slices = [
        *(gpu_ops[name] for name in ("start_ns", "end_ns")),
        *(_named(gpu_ops["name"]), gather(colors, color)),
        *(gpu_ops[name] for name in ("flow_id", "correlation_id", "graph_id")),
    ]
    if len(op_details.row):
        details = index_rows(op_details.distinct, op_details.row[gpu_ops["op_id"].to_numpy()])
        slices += details.get_columns()
    return build_frame(slices)


def cpu_range_slices(ranges: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of ranges on the CPU (`RANGES` with `parent_id`).

    With `parent` and colors as `range_slices`.
    """
    return ranges.select(
        "start_ns",
        "end_ns",
        parent=_parent_rows(ranges),
        name=_named(ranges["name"]),
        color=_color_jobs(ranges, job_ranges),
        flow_id=pl.lit(None, dtype=pl.UInt64),
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
        name=_named(api_calls["name"]),
        color=_no_color(),
        flow_id="flow_id",
        correlation_id="correlation_id",
    )


def mark_points(marks: pl.DataFrame) -> pl.DataFrame:
    """Build the instants of marks (`MARKS`), as `MARK_POINTS` with arguments."""
    return marks.select(
        "time_ns",
        name=_named(marks["name"]),
        color=_no_color(),
        domain="domain",
        category="category",
        payload=pl.col("payload").cast(pl.Categorical()),
    )


def flat_subtracks(slices: pl.DataFrame, tracks: Tracks = None) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Split slices into subtracks without overlap.

    Args:
        slices: Slices of all tracks.
        tracks: Rows of the slices of each track, at least one; None: all slices are of one track.

    Yields:
        Index of the track, number of the subtrack, its slices (with arguments).
    """
    start, end = (slices[column].to_numpy() for column in ("start_ns", "end_ns"))
    for track, rows in enumerate(_list_rows(slices, tracks)):
        subtrack = pack_flat(start[rows], end[rows])
        order = sort_rows(subtrack, start[rows], end[rows])
        yield from _cut(slices, track, rows[order], subtrack[order], np.zeros(len(rows), dtype=np.int32))


def nested_subtracks(
    slices: pl.DataFrame, tracks: Tracks = None
) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Split slices with `parent` into subtracks of nested slices, like `flat_subtracks`.

    A parent on another track is none.
    """
    start, end, parent = (slices[column].to_numpy() for column in ("start_ns", "end_ns", "parent"))
    slices = slices.drop("parent")
    place = np.full(len(slices) + 1, -1)  # of each slice, its row among those of the track
    for track, rows in enumerate(_list_rows(slices, tracks)):
        place[rows] = np.arange(len(rows))
        subtrack, above = pack_nested(start[rows], end[rows], place[parent[rows]])
        place[rows] = -1
        order, depth = nest_order(start[rows], end[rows], subtrack, above)
        yield from _cut(slices, track, rows[order], subtrack[order], depth[order].astype(np.int32))


def _list_rows(slices: pl.DataFrame, tracks: Tracks) -> Sequence[Int64s]:
    if tracks is not None:
        return tracks
    return [np.arange(len(slices))] if len(slices) else []


def _cut(
    slices: pl.DataFrame, track: int, rows: Int64s, subtrack: Int64s, depth: NDArray[np.int32]
) -> Iterator[tuple[int, int, ArrangedSlices]]:
    """Cut the rows of a track, in order of their subtracks, which ascend from 0 without a gap."""
    bounds = np.flatnonzero(np.diff(subtrack, prepend=-1, append=-1)).tolist()
    for number, (first, stop) in enumerate(pairwise(bounds)):
        yield track, number, ArrangedSlices(source=slices, rows=rows[first:stop], depth=depth[first:stop])


def _parent_rows(frame: pl.DataFrame) -> pl.Series:
    """Return the row of each range's parent; -1 if the parent is not in the frame."""
    return pl.Series("", find_rows(numbers(frame["range_id"]), numbers(frame["parent_id"])))


def _named(names: pl.Series) -> pl.Series:
    """Return names, with a word where there is none."""
    return names.fill_null(NO_NAME) if names.null_count() else names


def _color_jobs(ranges: pl.DataFrame, job_ranges: pl.DataFrame) -> pl.Series:
    """Return the kind of the job of each range, as its color; null where it is none."""
    if job_ranges.is_empty() or ranges.is_empty():
        return build_nulls("", pl.Categorical(), len(ranges))
    row = find_rows(numbers(job_ranges["range_id"]), numbers(ranges["range_id"]))
    code = np.where(row < 0, -1, numbers(job_ranges["kind"])[row])
    return gather(_list_job_colors(), code)


@cache
def _list_job_colors() -> pl.Series:
    return pl.Series(JOB_KINDS, dtype=pl.Categorical())


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())
