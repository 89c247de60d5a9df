"""Options and columns that the tables of a summary share."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.frames.table import Column
from nsys_pp.options import SUMMARY_GROUPS

GROUP_COLUMNS = (
    Column(
        "rank",
        pl.String,
        "label of the GPU process: its rank, else machine and GPU; null: unknown",
        is_group=True,
    ),
    Column("machine", pl.String, "label of the machine", is_group=True),
    Column("stage", pl.Int64, "pipeline stage; null: unknown", is_group=True),
    Column("gpu", pl.String, "label of the GPU on its machine", is_group=True),
    Column("step", pl.Int64, "number of the step; null: outside all steps", is_group=True),
)
"""Columns of groups, the first columns of a table."""

COLUMNS_OF_GROUP: Mapping[str, tuple[str, ...]] = SUMMARY_GROUPS
"""Names of groups (`--by`), and their columns."""

RANK_COLUMNS = (
    Column(
        "rank_min_ns",
        pl.Int64,
        "smallest total of a rank; 0 if a rank has other rows, but not this one",
    ),
    Column("rank_median_ns", pl.Float64, "median of the totals of ranks"),
    Column("rank_max_ns", pl.Int64, "largest total of a rank"),
    Column("slowest_rank", pl.String, "rank with the largest total; null if all totals are 0"),
)
"""Columns before the last one in groups of rows that have more than one rank (or GPU process)."""

SHARED_COLUMNS = (*GROUP_COLUMNS, *RANK_COLUMNS)
"""Columns that any table of a summary can have in addition to its own."""


class TableOptions(Struct, frozen=True, kw_only=True):
    """Options of the tables of a summary.

    Attributes:
        by: Groups of rows: a key of `COLUMNS_OF_GROUP`; "run": all rows form one group.
    """

    by: str = "run"

    def __post_init__(self) -> None:
        if self.by not in COLUMNS_OF_GROUP:
            raise ValueError(f"invalid group {self.by!r}; expected one of {', '.join(COLUMNS_OF_GROUP)}")
