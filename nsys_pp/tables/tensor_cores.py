"""Shares of tensor cores in the time of products, for tables of families of kernels."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.aggregates import MATRIX_FAMILIES
from nsys_pp.frames.table import Column

TENSOR_CORE_COLUMNS = (
    Column(
        "tensor_core_fraction",
        pl.Float64,
        "share of the durations with tensor cores, by the names of kernels; null: no products, or unknown",
        heading="Tensor cores",
        priority=5,
    ),
    Column(
        "tensor_core_unknown_fraction",
        pl.Float64,
        "share of the durations of kernels with names that do not show the use of tensor cores; null: no products",
        heading="or unknown",
        priority=4,
    ),
)


def sum_tensor_cores(duration: pl.Expr) -> dict[str, pl.Expr]:
    """Return sums for `share_tensor_cores`: the durations with tensor cores, and those with names that do not show it.

    Args:
        duration: Durations of operations with the column `tensor_cores` of `KERNEL_FAMILIES`.
    """
    return {
        "on_tensor_cores": duration.filter("tensor_cores").sum(),
        "tensor_cores_unknown": duration.filter(pl.col("tensor_cores").is_null()).sum(),
    }


def share_tensor_cores(total: pl.Expr) -> dict[str, pl.Expr]:
    """Return the values of `TENSOR_CORE_COLUMNS` for rows with a family.

    Args:
        total: Sum of the durations of a row, which also has those of `sum_tensor_cores`.
    """
    is_product, unknown = pl.col("family").is_in(MATRIX_FAMILIES), pl.col("tensor_cores_unknown")
    return {
        "tensor_core_fraction": pl.when(is_product & (total > unknown)).then(
            pl.col("on_tensor_cores") / total
        ),
        "tensor_core_unknown_fraction": pl.when(is_product & (total > 0)).then(unknown / total),
    }
