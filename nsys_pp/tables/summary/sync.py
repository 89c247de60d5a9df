"""Time on the CPU in calls that wait for the GPU."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.report import WAITING_CALL
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, add_ranks, join_by, order_table, share, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, sum_times

_FRACTION = Column("fraction", pl.Float64, "share of the span on the CPU")
_COLUMNS = (
    *(_FRACTION if column.name == "fraction" else column for column in TIME_COLUMNS),
    Column("name", pl.String, "name of the call"),
)
_ANY = "any of them"


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    is_wait = pl.col("name").cast(pl.String).str.contains(WAITING_CALL)
    calls = summary.frames["call_aggregates"].filter(pl.col("api") == "cuda", is_wait)
    calls = calls.with_columns(pl.col("name").cast(pl.String))
    hosts = add_groups(summary.frames["host_times"], summary, options)
    unions = hosts.filter((pl.col("activity") == "sync") & (pl.col("count") > 0)).with_columns(
        name=pl.lit(_ANY)
    )
    union = sum_by(unions, [*groups, "name"], count=pl.col("count").sum(), total_ns=pl.col("union_ns").sum())
    union = add_ranks(union, unions, summary, groups=groups, keys=["name"], value="union_ns")
    rows = pl.concat([sum_times(calls, summary, options, keys=["name"]), union], how="diagonal")
    spans = hosts.filter(pl.col("activity") == "span")
    spans = sum_by(spans, groups, span_ns=pl.col("union_ns").sum())
    rows = join_by(rows, spans, groups).with_columns(fraction=share("total_ns", "span_ns"))
    return order_table(rows, _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns")


SYNC_TABLE = Table(
    name="sync",
    title="Waiting for the GPU",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "CUDA calls that wait for the GPU, summed over threads: synchronisation, and synchronous copies from or to"
        " the CPU; and the time in which any thread of a process was in such a call."
        " Shares are of the span on the CPU, summed over processes."
    ),
    needs=("api_calls",),
    sort="total_ns",
    build=_build,
)
