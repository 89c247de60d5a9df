"""Utilisation of each GPU, and of the CPU by its process."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import (
    add_groups,
    join_by,
    order_table,
    process_groups,
    repeat_hosts,
    share,
    sum_by,
)
from nsys_pp.tables.summary.table import SHARED_COLUMNS, TableOptions

_COLUMNS = (
    Column("span_ns", pl.Int64, "span of the GPU's operations; of the process where it used no GPU"),
    Column("cpu_fraction", pl.Float64, "CPU time of the process over its span on the CPU; may exceed 1"),
    Column("kernel_fraction", pl.Float64, "share of the span in which a kernel ran"),
    Column(
        "compute_fraction", pl.Float64, "share of the span in which a kernel other than communication ran"
    ),
    Column(
        "busy_fraction", pl.Float64, "share of the span in which any operation ran, copies and sets included"
    ),
    Column("label", pl.String, "rank, or machine and GPU"),
)


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = process_groups(options)
    keys = [*dict.fromkeys([*groups, "label"])]
    times = add_groups(summary.frames["gpu_times"], summary, options)
    hosts = add_groups(repeat_hosts(summary), summary, options)
    labels = summary.processes.select("process", "label")
    names = ["span_ns", "kernel_ns", "compute_ns", "busy_ns"]
    gpu = sum_by(times.join(labels, on="process"), keys, **{name: pl.col(name).sum() for name in names})
    is_cpu = pl.col("activity") == "cpu"
    host = sum_by(
        hosts.join(labels, on="process"),
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
    order = summary.processes.select("label", pl.col("process").alias("_order"))
    return order_table(join_by(rows, order, ["label"]).sort("_order"), _COLUMNS, groups=groups)


DEVICE_TABLE = Table(
    name="device",
    title="Devices",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Share of the span in which a GPU ran a kernel, a computing kernel, or any operation; and CPU time of the process"
        " over its span, which may exceed 100 %."
    ),
    needs=("kernels", "copies", "sets", "graphs", "thread_switches"),
    build=_build,
)
