"""Slices of ranges, operations and API calls (name, color, arguments), and their split into subtracks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.write.trace.packing import nest_order, pack_flat, pack_nested

_KIND_COLORS = {"memcpy": "copy", "memset": "memset", "graph": "graph"}


def range_slices(projections: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of projected ranges (`PROJECTIONS`), with `parent`: row of the slice around each, or -1."""
    interval = pl.col("gpu_end_ns") - pl.col("gpu_start_ns")
    return projections.select(
        start_ns="gpu_start_ns",
        end_ns="gpu_end_ns",
        parent=_parent_rows(projections),
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


def operation_slices(gpu_ops: pl.DataFrame, op_details: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of GPU operations (`GPU_OPS` with `flow_id`); if `OP_DETAILS` were read, they are arguments."""
    kind = pl.col("kind").cast(pl.String)
    slices = gpu_ops.select(
        "start_ns",
        "end_ns",
        name=_named("name"),
        color=pl.when("is_communication")
        .then(pl.lit("communication"))
        .otherwise(kind.replace_strict(_KIND_COLORS, default=None, return_dtype=pl.String))
        .cast(pl.Categorical()),
        flow_id="flow_id",
        correlation_id="correlation_id",
        graph_id="graph_id",
    )
    if op_details.is_empty():
        return slices
    details = op_details.drop("op_id")[gpu_ops["op_id"]]
    return pl.concat([slices, details], how="horizontal")


def cpu_range_slices(ranges: pl.DataFrame) -> pl.DataFrame:
    """Build the slices of ranges on the CPU (`RANGES` with `parent_id`), with `parent`: row of the slice around each, or -1."""
    return ranges.select(
        "start_ns",
        "end_ns",
        parent=_parent_rows(ranges),
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


def flat_subtracks(slices: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Split slices into subtracks without overlap; yield the number and the `SLICES` (with arguments) of each."""
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    subtrack = pack_flat(start, end)
    order = np.lexsort((end, start, subtrack))
    yield from _split(slices, order, subtrack, np.zeros(len(subtrack), dtype=np.int64))


def nested_subtracks(slices: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Split slices with `parent` into subtracks of nested slices; yield the number and the `SLICES` of each."""
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    subtrack, above = pack_nested(start, end, slices["parent"].to_numpy())
    order, depth = nest_order(start, end, subtrack, above)
    yield from _split(slices.drop("parent"), order, subtrack, depth)


def _split(
    slices: pl.DataFrame, order: Int64s, subtrack: Int64s, depth: Int64s
) -> Iterator[tuple[int, pl.DataFrame]]:
    arranged = slices[order].with_columns(depth=pl.Series(depth[order], dtype=pl.Int32))
    bounds = np.searchsorted(subtrack[order], np.arange(int(subtrack.max()) + 2 if len(subtrack) else 1))
    for number, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        yield number, arranged[first:last]


def _parent_rows(frame: pl.DataFrame) -> pl.Series:
    """Return the row of each range's parent; -1 if the parent is not in the frame."""
    range_id = frame["range_id"].to_numpy()
    order = np.argsort(range_id, kind="stable")
    parent_id = frame["parent_id"].fill_null(-1).to_numpy()
    at = np.minimum(np.searchsorted(range_id[order], parent_id), max(len(order) - 1, 0))
    if not len(order):
        return pl.Series([], dtype=pl.Int64)
    is_present = range_id[order[at]] == parent_id
    return pl.Series(np.where(is_present, order[at], -1))


def _named(column: str) -> pl.Expr:
    return pl.col(column).fill_null("(no name)")


def _no_color() -> pl.Expr:
    return pl.lit(None, dtype=pl.Categorical())


def _no_flow() -> pl.Expr:
    return pl.lit(None, dtype=pl.UInt64)
