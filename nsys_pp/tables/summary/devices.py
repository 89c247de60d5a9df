"""How busy each GPU was, and the process that used it."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.groups import (
    add_groups,
    finish,
    groups_of_places,
    join_by,
    share,
    spread_hosts,
    sum_by,
)
from nsys_pp.tables.summary.table import Columns, SummaryTable, TableOptions, says_of

_COLUMNS: Columns = {
    "span_ns": (pl.Int64, "time of the GPU, or of the process where it used none"),
    "cpu_fraction": (pl.Float64, "time of the process on processors by its span on the CPU; may exceed 1"),
    "kernel_fraction": (pl.Float64, "of the span in which any kernel ran"),
    "compute_fraction": (pl.Float64, "of the span in which any kernel ran that is not communication"),
    "busy_fraction": (pl.Float64, "of the span in which anything ran, copies and sets among it"),
    "label": (pl.String, "rank, or machine and GPU"),
}


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = groups_of_places(options)
    keys = [*dict.fromkeys([*groups, "label"])]
    times = add_groups(summary.frames["gpu_times"], summary, options)
    hosts = add_groups(spread_hosts(summary), summary, options)
    labels = summary.places.select("place", "label")
    names = ["span_ns", "kernel_ns", "compute_ns", "busy_ns"]
    gpu = sum_by(times.join(labels, on="place"), keys, **{name: pl.col(name).sum() for name in names})
    is_cpu = pl.col("activity") == "cpu"
    host = sum_by(
        hosts.join(labels, on="place"),
        keys,
        host_ns=pl.col("union_ns").filter(pl.col("activity") == "span").sum(),
        cpu_ns=pl.when(is_cpu.any()).then(pl.col("union_ns").filter(is_cpu).sum()),
    )
    both = gpu.join(host, on=keys, how="full", coalesce=True, nulls_equal=True)
    rows = both.with_columns(
        span_ns=pl.coalesce("span_ns", "host_ns"),
        cpu_fraction=share("cpu_ns", "host_ns"),
        kernel_fraction=share("kernel_ns", "span_ns"),
        compute_fraction=share("compute_ns", "span_ns"),
        busy_fraction=share("busy_ns", "span_ns"),
    )
    order = summary.places.select("label", pl.col("place").alias("_order"))
    return finish(join_by(rows, order, ["label"]).sort("_order"), _COLUMNS, groups=groups)


DEVICE_TABLE = SummaryTable(
    title="Devices",
    columns=says_of(_COLUMNS),
    says=(
        "Share of the span in which a GPU ran a kernel, a kernel that computes, or anything; and time of the process on"
        " processors by its span, which may exceed 100 %."
    ),
    needs=("kernels", "copies", "sets", "graphs", "thread_switches"),
    totals=(),
    sort="",
    build=_build,
)
