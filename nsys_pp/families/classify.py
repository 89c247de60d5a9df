"""Families of kernels by name."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.types import Int64s
from nsys_pp.families.names import extract_functions, fold_names
from nsys_pp.families.rules import Rule, read_rules
from nsys_pp.frames.aggregates import FAMILY, KERNEL_FAMILIES
from nsys_pp.frames.conform import conform

_NUMBER = r" [0-9]+$"  # of a CUDA graph


def classify_kernels(names: pl.Series) -> pl.DataFrame:
    """Assign a family, a library and the use of tensor cores to names of kernels.

    Args:
        names: Distinct names, demangled with template arguments and parameters where recorded. Short names
            often lack what the rules need, and are "unknown" then.

    Returns:
        `KERNEL_FAMILIES`, one row per name in the same order. Empty in, empty out.
    """
    text = names.cast(pl.String).fill_null("")
    functions = extract_functions(text)
    rules = read_rules()
    row = _find_rules(text, functions, rules)
    columns = pl.DataFrame(
        {
            "family": [*(rule.family for rule in rules), "unknown"],
            "library": [*(rule.library for rule in rules), None],
            "tensor_cores": [*(rule.tensor_cores for rule in rules), None],
        },
        schema_overrides={"library": pl.String, "tensor_cores": pl.Boolean},
    )
    return (
        columns[row]
        .with_columns(name=names, folded_name=fold_names(text, functions))
        .pipe(conform, KERNEL_FAMILIES)
    )


def _find_rules(text: pl.Series, functions: pl.Series, rules: tuple[Rule, ...]) -> Int64s:
    """Find the first rule of each name; the number of rules without one."""
    distinct = functions.unique(maintain_order=True)
    number = functions.to_frame("function").join(
        distinct.to_frame("function").with_row_index("number"),
        on="function",
        how="left",
        maintain_order="left",
    )["number"]
    matches = distinct.to_frame("function").select(
        pl.col("function").str.contains(rule.pattern).alias(str(position))
        for position, rule in enumerate(rules)
    )
    is_match = matches.to_numpy()[number.to_numpy()]
    for position, rule in enumerate(rules):
        rows = np.flatnonzero(is_match[:, position])
        if rule.arguments and len(rows):
            is_match[rows, position] = text[rows].str.contains(rule.arguments).to_numpy()
    return np.where(is_match.any(axis=1), is_match.argmax(axis=1), len(rules))


def classify_operations(operations: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of `KERNEL_FAMILIES` to operations of any kind.

    Args:
        operations: `kind`, `name` and `is_communication`; each distinct name of a kernel is classified once.

    Returns:
        The same rows with `family`, `library`, `tensor_cores` and `folded_name`. Kernels marked as
        communication have this family, without a library where no rule agrees.
    """
    is_kernel = operations["kind"] == "kernel"
    families = classify_kernels(operations["name"].filter(is_kernel).unique())
    is_marked = pl.col("is_communication") & (pl.col("family") != "communication").fill_null(value=True)
    kind, name = pl.col("kind"), pl.col("name").cast(pl.String)
    return operations.join(
        families, on="name", how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(
        family=pl.when(kind == "graph")
        .then(pl.lit("graph", FAMILY))
        .when(kind != "kernel")
        .then(pl.lit("copy", FAMILY))
        .when(is_marked)
        .then(pl.lit("communication", FAMILY))
        .otherwise("family"),
        library=pl.when((kind == "kernel") & ~is_marked).then("library"),
        tensor_cores=pl.when((kind == "kernel") & ~is_marked).then("tensor_cores"),
        folded_name=pl.when(kind == "kernel")
        .then(pl.col("folded_name").cast(pl.String))
        .otherwise(name.str.replace(_NUMBER, "")),
    )
