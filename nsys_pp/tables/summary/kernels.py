"""Kernels by name, and by base name."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.table import SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, build_times

_COLUMNS = (
    *TIME_COLUMNS,
    Column(
        "name", pl.String, "name of the kernel; number of a graph that was traced as a whole", is_symbol=True
    ),
)
_CAPTION = (
    "Durations of kernels, and of CUDA graphs that were traced as a whole, summed: concurrent kernels all count."
    " Shares are of this sum."
)
_NEEDS = ("kernels", "graphs")


def _build_kernels(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, name="name")


def _build_base_kernels(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, name="base_name")


def _build(summary: Summary, options: TableOptions, *, name: str) -> pl.DataFrame:
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(KERNEL_KINDS))
    return build_times(ops.with_columns(name=pl.col(name)), summary, options, columns=_COLUMNS, keys=["name"])


KERNEL_TABLE = Table(
    name="kernels",
    title="Kernels by name",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=_CAPTION,
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_kernels,
)
BASE_KERNEL_TABLE = Table(
    name="base_kernels",
    title="Kernels by base name",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=f"{_CAPTION} Kernels that differ only in template arguments share a row.",
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_base_kernels,
)
