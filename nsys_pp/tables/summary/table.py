"""What a table of a summary is: a title, a function of the summary, and columns with their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from nsys_pp.frames.aggregates import Summary
from nsys_pp.frames.conform import build_schema

Columns = Mapping[str, tuple[pl.DataType | type[pl.DataType], str]]
"""Columns of a table in order: type, and what it says."""

GROUP_COLUMNS: Columns = {
    "rank": (pl.String, "label of the GPU process: its rank, or machine and GPU where none is known"),
    "machine": (pl.String, "its label"),
    "stage": (pl.Int64, "place in the pipeline; empty where unknown"),
    "gpu": (pl.String, "label of the GPU on its machine"),
    "step": (pl.Int64, "its number; empty for what lies outside all steps"),
}
COLUMNS_OF_GROUP: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "rank": ("rank",),
    "machine": ("machine",),
    "stage": ("stage",),
    "device": ("machine", "gpu"),
    "step": ("step",),
}
"""What tables may be split by -> the columns that come first."""

RANK_COLUMNS: Columns = {
    "rank_min_ns": (pl.Int64, "least total of a rank; 0 where one has none, though it has other rows"),
    "rank_median_ns": (pl.Float64, "median of the totals of ranks"),
    "rank_max_ns": (pl.Int64, "largest total of a rank"),
    "slowest_rank": (pl.String, "the rank with the largest total; empty where all are 0"),
}
"""Columns before the last one where some group of rows has more than one rank (or GPU process)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How to make a table.

    Attributes:
        by: What to split it by: a key of `COLUMNS_OF_GROUP`. "run" does not split it.
        paddle_compat: Count communication as Paddle's Distribution Summary does.
    """

    by: str = "run"
    paddle_compat: bool = False

    def __post_init__(self) -> None:
        if self.by not in COLUMNS_OF_GROUP:
            raise ValueError(f"tables are split by one of {', '.join(COLUMNS_OF_GROUP)}, not by {self.by!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """A table that can be made of any summary; an empty summary makes an empty one.

    Attributes:
        title: One line that says what is in it.
        columns: Name -> what it says. Units are in the names: `_ns`, `_bytes`, `_fraction` (0..1), `_count`,
            `_per_s`. The last one is the name of the row. Those of `GROUP_COLUMNS` that the table is split by
            come before all others, and those of `RANK_COLUMNS` before the last one, where there are any.
        says: How it was computed, and which rows overlap.
        says_compat: The same of what `paddle_compat` makes of it; "" where that changes nothing.
        needs: Words of `nsys_pp.model.recorded`, of which at least one must be recorded; (): none.
        totals: Columns that may be added up; () where rows overlap.
        sort: Column that rows are sorted by within their group, descending, if nothing else is asked for;
            "" where they have an order of their own.
        is_fixed: It has the same few rows for all reports: none is cut.
        build: Makes the table.
    """

    title: str
    columns: Mapping[str, str]
    says: str
    needs: tuple[str, ...]
    totals: tuple[str, ...]
    sort: str
    build: Callable[[Summary, TableOptions], pl.DataFrame]
    says_compat: str = ""
    is_fixed: bool = False


def describe_columns(table: SummaryTable) -> dict[str, str]:
    """Return what each column says that the table may have: those of groups and ranks, too.

    Where a table has a column of its own of that name, that one's meaning is told.
    """
    shared = {name: says for name, (_, says) in {**GROUP_COLUMNS, **RANK_COLUMNS}.items()}
    return {**shared, **table.columns}


def says_of(columns: Columns) -> dict[str, str]:
    """Return what each column says.

    >>> says_of({"step": (pl.Int64, "its number")})
    {'step': 'its number'}
    """
    return {name: says for name, (_, says) in columns.items()}


def schema_of(columns: Columns) -> pl.Schema:
    """Return the types of the columns.

    >>> schema_of({"step": (pl.Int64, "its number")}).names()
    ['step']
    """
    return build_schema({name: dtype for name, (dtype, _) in columns.items()})
