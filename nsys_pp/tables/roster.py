"""Table of a roster: machine, rank, GPU and stage of each report, and the sources of these."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.table import Column, Table, View

_COLUMNS = (
    Column("label", pl.String, "label of the report", heading="Report", is_file=True),
    Column("machine", pl.String, "label of the machine"),
    Column("machine_source", pl.String, "source of the machine"),
    Column("rank", pl.Int64, "rank of the process; null: unknown"),
    Column("rank_source", pl.String, "source of the rank"),
    Column("gpu", pl.String, "label of the GPU on its machine"),
    Column("stage", pl.Int64, "pipeline stage (pp); null: unknown"),
    Column("tensor", pl.Int64, "tensor-parallel rank (tp); null: unknown"),
    Column("replica", pl.Int64, "data-parallel rank (dp); null: unknown"),
    Column("stage_source", pl.String, "source of the stage"),
)
_STAGE = Column("layout", pl.String, "stage, with tensor-parallel and data-parallel rank", heading="Stage")
_GPU = Column("gpu_name", pl.String, "label of the GPU without its kind", heading="GPU")
_SOURCES = Column("sources", pl.String, "sources of machine, rank and stage", heading="Learned from")


def build_roster_table(roster: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `ROSTER_TABLE`: one per report, process and device, by machine, rank and GPU.

    Args:
        roster: `ROSTER` with `label`, the label of the report.
    """
    by = ("machine_order", "rank", "gpu_number", "report", "device_id")
    return roster.sort(*by, nulls_last=True).select(column.name for column in _COLUMNS)


def _describe_locations(table: pl.DataFrame) -> pl.DataFrame:
    """Add stages and sources as text; parallel dimensions of size one are omitted."""
    parts = [
        pl.format("{} {}", pl.lit(word), column)
        for column, word in (("tensor", "tp"), ("replica", "dp"))
        if table[column].n_unique() > 1
    ]
    sources = [
        pl.format("{}: {}", pl.lit(column), f"{column}_source") for column in ("machine", "rank", "stage")
    ]
    split = pl.concat_str(parts, separator=", ", ignore_nulls=True) if parts else pl.lit("")
    stage = pl.col("stage").cast(pl.String)
    return table.with_columns(
        gpu_name=pl.col("gpu").str.strip_prefix("GPU "),
        layout=pl.when(split != "").then(pl.format("{} ({})", stage, split)).otherwise(stage),
        sources=pl.concat_str(sources, separator=", ", ignore_nulls=True),
    )


ROSTER_TABLE = Table(
    name="roster",
    title="Reports",
    columns=_COLUMNS,
    caption="",
    build=build_roster_table,
    view=View(columns=("label", "machine", "rank", _GPU, _STAGE, _SOURCES), derive=_describe_locations),
)
