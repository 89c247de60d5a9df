"""Schemas, and `conform`, which checks a frame against one."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl


def build_schema(columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.Schema:
    """Make a schema of columns and types; `pl.Schema` alone hides from mypy that both are mixed."""
    return pl.Schema(columns)


def conform(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `frame` with exactly the columns of `schema`, in order, cast to its types.

    Args:
        frame: Any frame that has at least the columns of `schema`.
        schema: The contract.

    Returns:
        The frame with the schema's columns; extra columns are dropped, an empty frame stays empty.

    Raises:
        ValueError: A column is missing; all missing columns are named.

    >>> conform(pl.DataFrame({"b": [1], "a": [2], "c": [3]}), pl.Schema({"a": pl.Int32, "b": pl.Int64}))
    shape: (1, 2)
    ┌─────┬─────┐
    │ a   ┆ b   │
    │ --- ┆ --- │
    │ i32 ┆ i64 │
    ╞═════╪═════╡
    │ 2   ┆ 1   │
    └─────┴─────┘
    """
    there = frame.schema
    missing = [column for column in schema if column not in there]
    if missing:
        raise ValueError(f"frame lacks the columns {missing}")
    # most frames are small: to ask the engine of queries for casts takes longer than the casts
    fitted = frame[schema.names()]
    for place, (column, dtype) in enumerate(schema.items()):
        if there[column] != dtype:
            fitted.replace_column(place, fitted[column].cast(dtype))
    return fitted
