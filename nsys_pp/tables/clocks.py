"""Table of clocks: their corrections, and the errors of these."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nsys_pp.frames.table import Column, Table, View

_COUNTS = {"collective_count": "coll", "mpi_count": "mpi", "message_count": "msg"}
_SOURCES = {
    "UTC": "UTC alone",
    "given": "--offset",
    "alone": "the only clock",
    "same machine": "same machine",
    "nothing": "nothing",
}
_COLUMNS = (
    Column("machine", pl.String, "label of the machine"),
    Column("report", pl.String, "label of the report, or the number of reports", is_file=True),
    Column(
        "group",
        pl.Int64,
        "group of clocks; those of different groups cannot be compared with each other",
        is_optional=True,
    ),
    Column("source", pl.String, "kind of events or clocks used for its alignment"),
    Column(
        "offset_ns",
        pl.Int64,
        "correction of the recorded UTC, in the middle of the capture",
        heading="Added",
        display_unit="us",
        is_signed=True,
    ),
    Column("drift_ppm", pl.Float64, "excess of its rate over that of most clocks", is_signed=True),
    Column(
        "residual_median_ns",
        pl.Int64,
        "residual of the ends of shared operations, median; null without any",
        heading="Residual",
        display_unit="us",
    ),
    Column(
        "residual_p95_ns",
        pl.Int64,
        "95th percentile of these residuals",
        heading="95 % residual",
        display_unit="us",
    ),
    Column(
        "bound_ns",
        pl.Int64,
        "bound of its error; null: unknown",
        display_unit="us",
        priority=6,
        null_text="unknown",
    ),
    Column("collective_count", pl.Int64, "collectives shared with other clocks"),
    Column("mpi_count", pl.Int64, "MPI calls shared with other clocks"),
    Column("message_count", pl.Int64, "messages shared with other clocks"),
)
_SHARED = Column("shared", pl.String, "operations shared with other clocks, or the source of the correction")


def build_clock_table(clocks: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    """Build the rows of `CLOCK_TABLE`, in the order of `clocks`.

    Args:
        clocks: `CLOCKS` of an alignment; its column `reports` has positions in `labels`.
        labels: Labels of the reports.
    """
    names = [
        labels[reports[0]] if len(reports) == 1 else f"{len(reports)} reports"
        for reports in clocks["reports"].to_list()
    ]
    return clocks.select(
        "machine",
        pl.Series("report", names, dtype=pl.String),
        *(pl.col(column.name).cast(column.dtype) for column in _COLUMNS[2:]),
    )


def _describe_sources(table: pl.DataFrame) -> pl.DataFrame:
    """Add the operations that a clock shares, as text; omit the report if machines identify clocks."""
    counts = [
        pl.when(pl.col(column) > 0).then(pl.format("{} {}", column, pl.lit(word)))
        for column, word in _COUNTS.items()
    ]
    shared = pl.col("source").replace_strict(_SOURCES, default=None, return_dtype=pl.String)
    report = pl.col("report") if table["machine"].is_duplicated().any() else pl.lit(None, pl.String)
    return table.with_columns(
        report=report,
        drift_ppm=pl.col("drift_ppm").fill_null(0),
        shared=pl.coalesce(shared, pl.concat_str(counts, separator=", ", ignore_nulls=True)),
    )


CLOCK_TABLE = Table(
    name="clocks",
    title="Clocks",
    columns=_COLUMNS,
    caption=(
        "added: correction of the recorded UTC; residual: median and 95th percentile of the differences between ends of"
        " shared operations; bound: greatest error against clocks aligned with it"
    ),
    build=build_clock_table,
    view=View(
        columns=(
            *(
                "machine",
                "report",
                "group",
                "offset_ns",
                "drift_ppm",
                "residual_median_ns",
                "residual_p95_ns",
            ),
            *("bound_ns", _SHARED),
        ),
        derive=_describe_sources,
    ),
)
