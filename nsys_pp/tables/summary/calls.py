"""Calls of CUDA, and of the operating system."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.tables.summary.table import SummaryTable, TableOptions, says_of
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, build_times

_COLUMNS = {**TIME_COLUMNS, "name": (pl.String, "of the call")}


def _build_cuda(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, api="cuda")


def _build_os(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, api="os")


def _build(summary: Summary, options: TableOptions, *, api: str) -> pl.DataFrame:
    calls = summary.frames["call_aggregates"].filter(pl.col("api") == api)
    return build_times(calls, summary, options, columns=_COLUMNS, keys=["name"])


CUDA_TABLE = SummaryTable(
    title="CUDA calls",
    columns=says_of(_COLUMNS),
    says=(
        "Time inside calls of CUDA's runtime and driver on the CPU, added up over threads: calls of several"
        " threads at once count each, and so does a call inside a call. Fractions are of their sum."
    ),
    needs=("api_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_cuda,
)
OS_TABLE = SummaryTable(
    title="Calls of the operating system",
    columns=says_of(_COLUMNS),
    says=(
        "Time inside traced calls of the operating system, most of it waiting, added up over threads: calls of"
        " several threads at once count each. Fractions are of their sum."
    ),
    needs=("os_calls",),
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_os,
)
