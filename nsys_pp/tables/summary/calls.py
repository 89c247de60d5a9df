"""CUDA API calls and OS runtime calls by name."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.table import SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, build_times

_COLUMNS = (*TIME_COLUMNS, Column("name", pl.String, "name of the call", is_symbol=True))


def _build_cuda(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, api="cuda")


def _build_os(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, api="os")


def _build(summary: Summary, options: TableOptions, *, api: str) -> pl.DataFrame:
    calls = summary.frames["call_aggregates"].filter(pl.col("api") == api)
    return build_times(calls, summary, options, columns=_COLUMNS, keys=["name"])


CUDA_TABLE = Table(
    name="cuda",
    title="CUDA API calls",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Time in calls of the CUDA runtime and driver on the CPU, summed over threads: concurrent calls of several"
        " threads all count, and so does a call inside a call. Shares are of this sum."
    ),
    needs=("api_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_cuda,
)
OS_TABLE = Table(
    name="os",
    title="OS runtime calls",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Time in traced calls of the operating system, mostly waiting, summed over threads: concurrent calls of"
        " several threads all count. Shares are of this sum."
    ),
    needs=("os_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_os,
)
