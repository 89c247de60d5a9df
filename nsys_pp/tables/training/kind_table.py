"""Lengths and launch delays of jobs, by stage, kind, chunk and role."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import JOB_KIND, Training
from nsys_pp.tables.training.lane_steps import select_whole_steps

_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage; null: unknown"),
    Column("kind", JOB_KIND, "kind of job"),
    Column("chunk", pl.Int64, "number of the chunk on its stage; null: unknown", is_optional=True),
    Column("role", pl.String, "name of the model, such as actor or critic; null: none"),
    Column("job_count", pl.Int64, "jobs in complete steps"),
    Column(
        "total_ns", pl.Int64, "sum of the compute of jobs, each from its first to its last computing kernel"
    ),
    Column(
        "median_ns",
        pl.Float64,
        "median compute of a job; null if none computes",
        display_unit="ms",
        priority=5,
    ),
    Column("min_ns", pl.Int64, "shortest compute", display_unit="ms"),
    Column("max_ns", pl.Int64, "longest compute", display_unit="ms"),
    Column("busy_fraction", pl.Float64, "share of the compute in which kernels run", decimals=1, priority=4),
    Column(
        "median_hull_ns",
        pl.Float64,
        "median length of a job with its communication",
        heading="With messages",
        display_unit="ms",
        priority=3,
    ),
    Column(
        "median_launch_delay_ns",
        pl.Float64,
        "median delay from the call that launched the first operation of a job to that operation",
        heading="Launch delay",
        display_unit="us",
        priority=3,
    ),
    Column("median_host_ns", pl.Float64, "median length of the range of a job on the CPU"),
)


def build_kind_table(training: Training) -> pl.DataFrame:
    """Build the rows of `KIND_TABLE`, by stage, kind, chunk and role."""
    complete = select_whole_steps(training).select("lane", "step")
    compute = pl.col("compute_end_ns") - pl.col("compute_start_ns")
    return (
        training.jobs.join(complete, on=["lane", "step"], how="semi")
        .join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .group_by("stage", "kind", "chunk", "role")
        .agg(
            job_count=pl.len(),
            total_ns=compute.sum(),
            median_ns=compute.median(),
            min_ns=compute.min(),
            max_ns=compute.max(),
            busy_fraction=(pl.col("compute_ns").sum() / compute.sum()).fill_nan(None),
            median_hull_ns=(pl.col("end_ns") - pl.col("start_ns")).median(),
            median_launch_delay_ns=pl.col("launch_delay_ns").median(),
            median_host_ns=(pl.col("host_end_ns") - pl.col("host_start_ns")).median(),
        )
        .sort("stage", "kind", "chunk", "role", nulls_last=True)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


KIND_TABLE = Table(
    name="kinds",
    title="Jobs by stage and kind",
    columns=_COLUMNS,
    caption="medians of one job, from its first to its last computing kernel (no communication); jobs of complete steps",
    build=build_kind_table,
    view=View(
        columns=(
            *("stage", "chunk", "role", "job_count", "median_ns", "min_ns", "max_ns", "busy_fraction"),
            *("median_hull_ns", "median_launch_delay_ns", "kind"),
        )
    ),
)
