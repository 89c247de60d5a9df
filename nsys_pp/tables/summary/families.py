"""Families of kernels, and below each its kernels by folded name."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.arrays.distributions import describe_distributions, merge_distributions
from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, add_ranks, number_groups, order_table, over, share
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions
from nsys_pp.tables.summary.times import TIME_COLUMNS
from nsys_pp.tables.tensor_cores import TENSOR_CORE_COLUMNS, share_tensor_cores, sum_tensor_cores

_COLUMNS = (
    *TIME_COLUMNS,
    *TENSOR_CORE_COLUMNS,
    Column("library", pl.String, "library of the kernels; null: several, or unknown", priority=3),
    Column("name", pl.String, "family; below it its kernels, without template arguments, sizes and hashes"),
)
_INDENT = "  "
_KERNEL = ["family", "folded_name"]


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    ops = add_groups(classify_operations(summary.frames["op_aggregates"]), summary, options)
    families = _sum_rows(ops, summary, groups, ["family"]).with_columns(folded_name=pl.lit(None, pl.String))
    rows = pl.concat([families, _sum_rows(ops, summary, groups, _KERNEL)], how="diagonal")
    whole = over(pl.col("total_ns").filter(pl.col("folded_name").is_null()).sum(), groups)
    return _order(rows.with_columns(fraction=share("total_ns", whole)), groups)


def _sum_rows(
    ops: pl.DataFrame, summary: Summary, groups: Sequence[str], keys: Sequence[str]
) -> pl.DataFrame:
    """Sum operations by group and keys: times, shares of tensor cores, and library."""
    by = [*groups, *keys]
    total = pl.col("total")
    shown = ops.group_by(by).agg(
        duration=total.sum(),
        **sum_tensor_cores(total),
        library=pl.when(pl.col("library").n_unique() == 1).then(pl.col("library").first()),
    )
    rows = (
        describe_distributions(merge_distributions(ops, by))
        .join(shown, on=by, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(**share_tensor_cores(pl.col("duration")))
    )
    return add_ranks(rows, ops, summary, groups=groups, keys=keys, value="total")


def _order(rows: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Sort families by total, and the kernels of each below it."""
    is_kernel = pl.col("folded_name").is_not_null()
    name = (
        pl.when(is_kernel).then(_INDENT + pl.col("folded_name")).otherwise(pl.col("family").cast(pl.String))
    )
    numbered = number_groups(rows.with_columns(name=name), groups)
    ordered = numbered.sort(
        "_group",
        pl.col("total_ns").filter(~is_kernel).first().over("_group", "family"),
        "family",
        is_kernel,
        "total_ns",
        "folded_name",
        descending=[False, True, False, False, True, False],
        nulls_last=True,
    )
    return order_table(ordered, _COLUMNS, groups=groups)


FAMILY_TABLE = Table(
    name="families",
    title="Families of kernels",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Durations of operations, summed, by families that the names of kernels show; unknown: no rule matches the name."
        " Tensor cores: share of the durations of products, by names."
    ),
    needs=("kernels", "copies", "sets", "graphs"),
    sort="total_ns",
    is_nested=True,
    build=_build,
)
