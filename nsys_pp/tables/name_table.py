"""Table of the names of ranges, and the rule that reads each."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, build_table_schema

_COLUMNS = (
    Column("kind", pl.String, "kind of the job, or `step`; null: no rule reads the name", null_text="unread"),
    Column("range_count", pl.Int64, "ranges with the name"),
    Column(
        "gpu_ns", pl.Int64, "time of GPU operations in these ranges, on all devices; nested ranges all count"
    ),
    Column("preset", pl.String, "preset of the rule; null: none", null_text=""),
    Column("pattern", pl.String, "expression of the rule; null: none", is_name=True, null_text=""),
    Column("name", pl.String, "name of the ranges, with `#` for numbers", is_name=True),
)


def _build(names: pl.DataFrame) -> pl.DataFrame:
    return conform(names, build_table_schema(_COLUMNS))


NAME_TABLE = Table(
    name="names",
    title="Names of ranges",
    columns=_COLUMNS,
    caption="Names that a rule reads come first, then unread ones, each by GPU time. `--job-pattern` reads more.",
    empty="no ranges were recorded",
    build=_build,
)
"""Built from the frame of `nsys_pp.explain_jobs`."""
