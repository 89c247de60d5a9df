"""A row per stage, kind of job and chunk: how long such jobs take, and how they are launched."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import JOB_KIND, Training
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.table import Columns, build_table, schema_of

_COLUMNS: Columns = {
    "stage": (pl.Int64, "null where unknown"),
    "kind": (JOB_KIND, "kind of job"),
    "chunk": (pl.Int64, "part of the model, among those of the stage; null where unknown"),
    "job_count": (pl.Int64, "such jobs in complete steps"),
    "total_ns": (pl.Int64, "their compute, each from its first to its last kernel; without communication"),
    "median_ns": (pl.Float64, "of one job; null where none computes"),
    "min_ns": (pl.Int64, "least"),
    "max_ns": (pl.Int64, "most"),
    "busy_fraction": (pl.Float64, "share of that time that kernels run"),
    "median_hull_ns": (pl.Float64, "of one job with its communication"),
    "median_launch_delay_ns": (
        pl.Float64,
        "from the call that launched its first operation to that operation",
    ),
    "median_host_ns": (pl.Float64, "of its range on the CPU"),
}


def build_kind_table(training: Training) -> pl.DataFrame:
    """Make the table of job kinds, by stage, kind and chunk; `KIND_TABLE` says what its columns mean."""
    complete = sum_lane_steps(training).filter("is_complete").select("lane", "step")
    compute = pl.col("compute_end_ns") - pl.col("compute_start_ns")
    return (
        training.jobs.join(complete, on=["lane", "step"], how="semi")
        .join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .group_by("stage", "kind", "chunk")
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
        .sort("stage", "kind", "chunk", nulls_last=True)
        .pipe(conform, schema_of(_COLUMNS))
    )


KIND_TABLE = build_table("Jobs by stage and kind", _COLUMNS, build_kind_table)
