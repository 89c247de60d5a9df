"""Overhead of profiling by step."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import Training

_COLUMNS = (
    Column("step", pl.Int64, "number of the step; null: outside all steps", priority=9),
    Column("name", pl.String, "name of the overhead; null: all of the profiler", is_name=True, priority=9),
    Column("is_of_profiler", pl.Boolean, "the profiler causes it; false: CUDA or the program loads or compiles code, or launches are too many", priority=5),
    Column("time_ns", pl.Int64, "time that it took of launching threads, over all lanes", display_unit="ms", priority=8),
    Column("fraction", pl.Float64, "share of the step, over the lanes with overhead; null outside", decimals=1, priority=9),
    Column("most_fraction", pl.Float64, "share on the lane with the largest one", decimals=1, priority=6),
    Column("label", pl.String, "this lane", priority=5),
    Column("count", pl.Int64, "occurrences that began in the step", priority=4),
    Column("lane_count", pl.Int64, "lanes with it", heading="Lanes", priority=4),
)  # fmt: skip


def build_overhead_table(training: Training, overheads: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `OVERHEAD_TABLE`: by step, then the profiler, then by descending time.

    Args:
        training: The training.
        overheads: `LANE_OVERHEADS` of it.
    """
    share = pl.col("time_ns") / pl.col("step_ns")
    labels = training.lanes.select("lane", "label")
    held = overheads.filter(pl.col("time_ns") > 0)  # others are flushes on threads that do not launch
    rows = held.join(labels, on="lane", how="left").with_columns(share=share)
    return (
        rows.group_by("step", "name", "is_of_profiler")
        .agg(
            time_ns=pl.col("time_ns").sum(),
            fraction=pl.when(pl.col("step").is_not_null().all()).then(
                pl.col("time_ns").sum() / pl.col("step_ns").sum()
            ),
            most_fraction=pl.col("share").max(),
            label=pl.col("label").sort_by("share", "time_ns", descending=True).first(),
            count=pl.col("count").sum(),
            lane_count=pl.col("lane").n_unique().cast(pl.Int64),
        )
        .with_columns(most_fraction=pl.when(pl.col("step").is_not_null()).then("most_fraction"))
        .sort("step", pl.col("name").is_not_null(), -pl.col("time_ns"), "name", nulls_last=True)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


OVERHEAD_TABLE = Table(
    name="overhead",
    title="Overhead of profiling in launching threads",
    columns=_COLUMNS,
    caption=(
        "time in which nsys or the tracing of CUDA held a thread that launches; a step is longer by at most as much."
        " What tracing adds to each call is not recorded"
    ),
    build=build_overhead_table,
    empty="no overhead was recorded on launching threads",
)
