"""Delays from the launch of a kernel to its start, and queues of launched kernels."""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.frames.aggregates import LATE_NS, SLOW_CALL_NS, Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, join_by, order_table, process_groups, share, sum_by
from nsys_pp.tables.summary.table import SHARED_COLUMNS, TableOptions
from nsys_pp.units import NS_PER_US

_COLUMNS = (
    Column("count", pl.Int64, "kernels and graphs with a known launch"),
    Column("mean_ns", pl.Float64, "mean delay from the start of the call to the start of the kernel"),
    Column("median_ns", pl.Float64, "median delay"),
    Column("min_ns", pl.Int64, "shortest delay"),
    Column("max_ns", pl.Int64, "longest delay"),
    Column("mean_queue_count", pl.Float64, "kernels that are launched and not finished, mean over the span"),
    Column("max_queue_count", pl.Int64, "kernels that are launched and not finished, at most"),
    Column("short_count", pl.Int64, "kernels shorter than the call that launched them"),
    Column(
        "slow_call_count", pl.Int64, f"kernels whose call lasted longer than {SLOW_CALL_NS // NS_PER_US} us"
    ),
    Column(
        "late_count", pl.Int64, f"kernels that started later than {LATE_NS // NS_PER_US} us after the call"
    ),
    Column("label", pl.String, "rank, or machine and GPU"),
)
_COUNTS = ("short_count", "slow_call_count", "late_count")


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = process_groups(options)
    keys = [*dict.fromkeys([*groups, "label"])]
    labels = summary.processes.select("process", "label")
    frame, times = (
        add_groups(summary.frames[name], summary, options).join(labels, on="process", maintain_order="left")
        for name in ("launch_aggregates", "gpu_times")
    )
    delays = describe_distributions(merge_distributions(frame, keys))
    queues = sum_by(
        frame,
        keys,
        queued_ns=pl.col("queued_ns").sum(),
        max_queue_count=pl.col("queue_most").max(),
        **{name: pl.col(name).sum() for name in _COUNTS},
    )
    spans = sum_by(times, keys, span_ns=pl.col("span_ns").sum())
    rows = join_by(join_by(delays, queues, keys), spans, keys)
    rows = rows.with_columns(mean_queue_count=share("queued_ns", "span_ns"))
    order = summary.processes.select("label", pl.col("process").alias("_order"))
    return order_table(join_by(rows, order, ["label"]).sort("_order"), _COLUMNS, groups=groups)


LAUNCH_TABLE = Table(
    name="launches",
    title="Launches",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "From the start of the call that launched a kernel (or a graph) to its start. Long delays and a full queue: the CPU"
        " is ahead of the GPU, as it should be; short delays and an empty queue: the GPU waits for the CPU. The mean queue"
        " is over the span."
    ),
    needs=("api_calls",),
    totals=("count", *_COUNTS),
    build=_build,
)
