"""Idle time of GPUs and of their streams, by cause."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import KERNEL_WAIT_NS, Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, join_by, order_table, share, sum_by
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_COLUMNS = (
    Column("where", pl.String, "the GPU as a whole, or one of its streams", is_group=True),
    Column("count", pl.Int64, "number of gaps"),
    Column("total_ns", pl.Int64, "sum of their lengths"),
    Column("fraction", pl.Float64, "share of the span of the GPUs that have such a stream"),
    Column("mean_ns", pl.Float64, "mean length"),
    Column("max_ns", pl.Int64, "greatest length"),
    Column("cause", pl.String, "reason why nothing ran"),
)
_CAUSES = {
    "edges": "nothing before, or nothing after",
    "host_late": "launched too late",
    "kernel_wait": "from kernel to kernel",
    "other": "launched in time, but waited",
    "unknown": "unknown launch",
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    frame = add_groups(summary.frames["idle_times"], summary, options)
    spans = add_groups(summary.frames["gpu_times"], summary, options)
    spans = sum_by(spans, [*dict.fromkeys(["process", *groups])], span_ns=pl.col("span_ns").sum())
    by_stream = [*groups, "stream_id"]
    own_spans = join_by(frame.select("process", *by_stream).unique(), spans, ["process", *groups])
    whole = sum_by(own_spans, by_stream, span_ns=pl.col("span_ns").sum())
    rows = sum_by(
        frame,
        [*by_stream, "cause"],
        count=pl.col("count").sum(),
        total_ns=pl.col("total_ns").sum(),
        max_ns=pl.col("most_ns").max(),
    )
    where = pl.when(pl.col("stream_id").is_null()).then(pl.lit("device"))
    rows = join_by(rows, whole, by_stream).with_columns(
        pl.col("cause").cast(pl.String).replace(_CAUSES),
        fraction=share("total_ns", "span_ns"),
        mean_ns=share("total_ns", "count"),
        where=where.otherwise(pl.format("stream {}", "stream_id")),
        _stream=pl.col("stream_id").fill_null(-1),
    )
    return order_table(
        rows, _COLUMNS, groups=COLUMNS_OF_GROUP[options.by], sort="total_ns", before=["_stream"]
    )


IDLE_TABLE = Table(
    name="idle",
    title="Idle time of GPUs",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Gaps in which a GPU, or a stream of it, ran nothing; streams with the same number are summed. Launched too late:"
        " the call began after the gap had begun; from kernel to kernel: below"
        f" {KERNEL_WAIT_NS} ns; waited: for a stream, an event or another process."
    ),
    needs=("kernels", "copies", "sets", "graphs"),
    sort="total_ns",
    build=_build,
)
