"""What the length of a step hangs on, summed up: which stage, which kind of job, which wait."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import CAUSE, JOB_KIND, Training
from nsys_pp.tables.training.critical_path import CRITICAL_PATH, find_critical_path
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.table import Columns, build_table, schema_of

_COLUMNS: Columns = {
    "stage": (pl.Int64, "null where unknown"),
    "cause": (CAUSE, "compute, or what kept the stage from it"),
    "kind": (JOB_KIND, "of the job that computes; null outside of jobs"),
    "step_count": (pl.Int64, "complete steps whose critical path has it"),
    "segment_count": (pl.Int64, "times that it is on the path"),
    "time_ns": (pl.Float64, "its time on the path of a step; mean of the complete steps"),
    "fraction": (pl.Float64, "share of the path"),
    "most_gain_ns": (
        pl.Float64,
        "what a step can gain at most if it were 10 % faster: less, if another path is then the longest",
    ),
}
_PATH_COLUMNS: Columns = {
    "step": (pl.Int64, "its number"),
    "lane": (pl.UInt32, "where the path is"),
    "label": (pl.String, "name of that lane"),
    "stage": (pl.Int64, "its stage; null where unknown"),
    "cause": (CAUSE, "compute, or what kept the lane from it"),
    "kind": (JOB_KIND, "of the job that computes; null outside of jobs"),
    "job": (pl.UInt32, "that job"),
    "start_ns": (pl.Int64, "from the start of the earliest session"),
    "end_ns": (pl.Int64, "from the start of the earliest session"),
}


def build_critical_table(training: Training) -> pl.DataFrame:
    """Sum up the critical paths of the complete steps by stage, cause and kind, largest first.

    `CRITICAL_TABLE` says what its columns mean.
    """
    complete = sum_lane_steps(training).filter("is_complete").select("step").unique()
    path = find_critical_path(training).join(complete, on="step", how="semi")
    duration = pl.col("end_ns") - pl.col("start_ns")
    step_count = max(path["step"].n_unique(), 1)
    return (
        path.group_by("stage", "cause", "kind")
        .agg(step_count=pl.col("step").n_unique(), segment_count=pl.len(), total_ns=duration.sum())
        .with_columns(
            time_ns=pl.col("total_ns") / step_count,
            fraction=pl.col("total_ns") / pl.col("total_ns").sum(),  # of whole numbers: the same in any order
            most_gain_ns=pl.col("total_ns") / (10 * step_count),
        )
        .sort("time_ns", "stage", "cause", "kind", descending=[True, False, False, False])
        .pipe(conform, schema_of(_COLUMNS))
    )


def build_path_table(training: Training) -> pl.DataFrame:
    """List the critical path of every step; `PATH_TABLE` says what its columns mean."""
    labels = training.lanes.select("lane", "label")
    return (
        find_critical_path(training)
        .select(CRITICAL_PATH.names())
        .join(labels, on="lane", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - training.zero_ns)
        .pipe(conform, schema_of(_PATH_COLUMNS))
    )


CRITICAL_TABLE = build_table("What the length of a step hangs on", _COLUMNS, build_critical_table)
PATH_TABLE = build_table("Critical path of each step", _PATH_COLUMNS, build_path_table)
