"""Operators of the framework, nested operators, and the kernels that they launched."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.table import Column, Table
from nsys_pp.tables.summary.groups import add_groups, add_ranks, number_groups, order_table, over, share
from nsys_pp.tables.summary.items import describe_items, item_columns
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP, SHARED_COLUMNS, TableOptions

_COLUMNS = (
    *item_columns(
        "share of all operators on the CPU, or of the operator around it",
        "share of all operators on GPUs, or of the operator around it",
    ),
    Column(
        "name",
        pl.String,
        "operator; below it its kernels, then the operators inside it with theirs",
        is_symbol=True,
    ),
)
_LEVELS = ["operator", "inner", "kernel"]
_INNER_INDENT, _KERNEL_INDENT = " " * 2, " " * 4


def _build(summary: Summary, options: TableOptions) -> pl.DataFrame:
    groups = COLUMNS_OF_GROUP[options.by]
    items = summary.frames["item_aggregates"].filter(pl.col("item") == "operator")
    named = add_groups(items, summary, options).with_columns(
        operator=pl.col("name").cast(pl.String),
        inner=pl.col("inner").cast(pl.String),
        kernel=pl.col("kernel").cast(pl.String),
    )
    rows = describe_items(named, [*groups, *_LEVELS])
    on_gpus = named.filter(pl.col("measure") == "gpu")
    rows = add_ranks(rows, on_gpus, summary, groups=groups, keys=_LEVELS, value="total")
    is_inner, is_kernel = pl.col("inner").is_not_null(), pl.col("kernel").is_not_null()
    is_top = ~is_inner & ~is_kernel
    of_operator, of_inner = [*groups, "operator"], [*groups, "operator", "inner"]
    for side in ("host", "gpu"):
        total = pl.col(f"{side}_total_ns")
        whole = over(total.filter(is_top).sum(), groups)
        operator = total.filter(is_top).first().over(of_operator)
        inner = total.filter(~is_kernel).first().over(of_inner)
        parent = pl.when(is_top).then(whole).when(is_kernel).then(inner).otherwise(operator)
        rows = rows.with_columns(share(total, parent).alias(f"{side}_fraction"))
    return _order(rows, groups)


def _order(rows: pl.DataFrame, groups: Sequence[str]) -> pl.DataFrame:
    """Sort operators, and the rows inside each of them."""
    is_inner, is_kernel = pl.col("inner").is_not_null(), pl.col("kernel").is_not_null()
    name = (
        pl.when(is_kernel)
        .then(_KERNEL_INDENT + pl.col("kernel"))
        .when(is_inner)
        .then(_INNER_INDENT + pl.col("inner"))
        .otherwise("operator")
    )
    rows = number_groups(rows.with_columns(name=name), groups)
    value = pl.col("host_total_ns")
    ordered = rows.sort(
        "_group",
        value.filter(~is_inner & ~is_kernel).first().over("_group", "operator"),
        "operator",
        is_inner,  # own kernels come first: below an inner operator they would look like kernels of that one
        value.filter(~is_kernel).first().over("_group", "operator", "inner"),
        "inner",
        is_kernel,
        "gpu_total_ns",
        "kernel",
        descending=[False, True, False, False, True, False, False, True, False],
        nulls_last=True,
    )
    return order_table(ordered, _COLUMNS, groups=groups)


OPERATOR_TABLE = Table(
    name="operators",
    title="Operators of the framework",
    columns=_COLUMNS,
    extra_columns=SHARED_COLUMNS,
    caption=(
        "Times of operators on the CPU, and durations of the operations that they launched, summed. Below an operator: the"
        " kernels that it launched itself, and operators directly inside it; their shares are of the row that they are"
        " part of."
    ),
    needs=("ranges",),
    sort="host_total_ns",
    is_nested=True,
    build=_build,
)
