"""Computation and communication, and their overlap."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import (
    add_groups,
    add_ranks,
    join_by,
    order_table,
    repeat_hosts,
    share,
    sum_by,
)
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_COLUMNS = (
    Column("time_ns", pl.Int64, "time of the part, summed over GPUs"),
    Column("fraction", pl.Float64, "share of the span"),
    Column("part", pl.String, "part of the span"),
)
_PARTS = {
    "span": pl.col("span_ns"),
    "computation": pl.col("compute_ns"),
    "communication": pl.col("communication_ns"),
    "overlap": pl.col("overlap_ns"),
    "exposed communication": pl.col("communication_ns") - pl.col("overlap_ns"),
    "exposed copies": pl.col("busy_ns") - pl.col("kernel_ns"),
    "idle": pl.col("span_ns") - pl.col("busy_ns"),
}
_PADDLE_SPAN = "ProfileStep"
_PADDLE_PARTS = {
    "Communication": pl.col("any_communication_ns"),
    "Computation": pl.col("compute_ns"),
    "Overlap": pl.col("any_overlap_ns"),
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    times = summary.frames["gpu_times"]
    return _sum_parts(_select_parts(times, _PARTS), summary, options)


def _build_as_paddle(summary: Summary, options: TableOptions) -> pl.DataFrame:
    times = summary.frames["gpu_times"]
    parts = [_paddle_spans(summary), _select_parts(times, _PADDLE_PARTS)]
    return _sum_parts(pl.concat(parts), summary, options)


def _select_parts(times: pl.DataFrame, parts: Mapping[str, pl.Expr]) -> pl.DataFrame:
    return pl.concat(
        times.select("process", "step", part=pl.lit(part), time_ns=time_ns) for part, time_ns in parts.items()
    )


def _sum_parts(parts: pl.DataFrame, summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    frame = add_groups(parts, summary, options)
    rows = sum_by(frame, [*groups, "part"], time_ns=pl.col("time_ns").sum())
    is_span = pl.col("part").is_in(["span", _PADDLE_SPAN])
    spans = rows.filter(is_span).select(*groups, span_ns="time_ns")
    rows = join_by(rows, spans, groups).with_columns(fraction=share("time_ns", "span_ns"))
    rows = add_ranks(rows, frame, summary, groups=groups, keys=["part"], value="time_ns")
    return order_table(rows, _COLUMNS, groups=groups)


def _paddle_spans(summary: Summary) -> pl.DataFrame:
    """Return the spans of steps on the CPU for every GPU of the process; the whole spans without steps."""
    spans = repeat_hosts(summary).filter(pl.col("activity") == "span")
    has_steps = pl.col("step").is_not_null().any().over("process")
    return (
        spans.filter(pl.col("step").is_not_null() | ~has_steps)
        .join(summary.frames["gpu_times"].select("process").unique(), on="process", how="semi")
        .select("process", "step", part=pl.lit(_PADDLE_SPAN), time_ns="union_ns")
    )


_NEEDS = ("kernels", "graphs")
DISTRIBUTION_TABLE = Table(
    name="distribution",
    title="Computation and communication",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Times of each GPU across its streams, summed. Computation, exposed communication, exposed copies (without a kernel)"
        " and idle add up to the span; overlap: computation and communication at once."
    ),
    needs=_NEEDS,
    is_fixed=True,
    build=_build,
)
PADDLE_DISTRIBUTION_TABLE = Table(
    name="distribution",
    title="Computation and communication",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "As in Paddle: ProfileStep is the length of the steps on the CPU; communication is communication kernels and"
        " communication ranges on the CPU; overlap is communication and computation at once."
    ),
    needs=_NEEDS,
    is_fixed=True,
    build=_build_as_paddle,
)
