"""Kernels by name, and by base name."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.report import KERNEL_KINDS
from nsys_pp.tables.summary.table import SummaryTable, TableOptions, says_of
from nsys_pp.tables.summary.times import TIME_COLUMNS, TIME_TOTALS, build_times

_COLUMNS = {**TIME_COLUMNS, "name": (pl.String, "of the kernel; of a graph traced as a whole, its number")}
_SAYS = (
    "Durations of kernels added up, and of CUDA graphs that were traced as a whole: kernels that ran at the"
    " same time count twice. Fractions are of the sum of all of them."
)
_NEEDS = ("kernels", "graphs")


def _build_kernels(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, name="name")


def _build_base_kernels(summary: Summary, options: TableOptions) -> pl.DataFrame:
    return _build(summary, options, name="base_name")


def _build(summary: Summary, options: TableOptions, *, name: str) -> pl.DataFrame:
    ops = summary.frames["op_aggregates"].filter(pl.col("kind").is_in(KERNEL_KINDS))
    return build_times(ops.with_columns(name=pl.col(name)), summary, options, columns=_COLUMNS, keys=["name"])


KERNEL_TABLE = SummaryTable(
    title="Kernels by name",
    columns=says_of(_COLUMNS),
    says=_SAYS,
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_kernels,
)
BASE_KERNEL_TABLE = SummaryTable(
    title="Kernels by base name",
    columns=says_of(_COLUMNS),
    says=f"{_SAYS} Kernels that differ in template arguments alone are one row.",
    needs=_NEEDS,
    totals=TIME_TOTALS,
    sort="total_ns",
    build=_build_base_kernels,
)
