"""Critical paths of steps: their segments, and sums by stage, cause, and kind and role of job."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import CAUSE, JOB_KIND, Training
from nsys_pp.tables.training.critical_path import CRITICAL_PATH, find_critical_path
from nsys_pp.tables.training.lane_steps import sum_lane_steps

_LEAST_FRACTION = 0.0005  # on a terminal: what is not rounded to 0.0 %

_ROLE = Column("role", pl.String, "role of that job: name of the model, such as actor or critic; null: none")
_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage; null: unknown"),
    Column("cause", CAUSE, "compute, or the cause of the bubble"),
    Column("kind", JOB_KIND, "kind of the job that computes; null outside of jobs"),
    _ROLE,
    Column("step_count", pl.Int64, "complete steps with this work on their critical path"),
    Column("segment_count", pl.Int64, "number of segments of this work on these paths"),
    Column(
        "time_ns", pl.Float64, "time on the path of a step; mean of the complete steps", display_unit="ms"
    ),
    Column("fraction", pl.Float64, "share of the path", decimals=1),
    Column(
        "most_gain_ns",
        pl.Float64,
        "upper limit of the gain in a step if this work were 10 % faster; less if another path is then the longest",
        heading="Gain if 10 % faster",
        display_unit="ms",
        priority=4,
    ),
)
_PATH_COLUMNS = (
    Column("step", pl.Int64, "number of the step"),
    Column("lane", pl.UInt32, "lane of the path"),
    Column("label", pl.String, "name of that lane", heading="Lane"),
    Column("stage", pl.Int64, "stage of that lane; null: unknown"),
    Column("cause", CAUSE, "compute, or the cause of the bubble"),
    Column("kind", JOB_KIND, "kind of the job that computes; null outside of jobs"),
    _ROLE,
    Column("job", pl.UInt32, "number of that job"),
    Column("start_ns", pl.Int64, "start, from the start of the earliest session", display_unit="ms"),
    Column("end_ns", pl.Int64, "end, from the start of the earliest session", display_unit="ms"),
)
_ACTIVITY = Column("activity", pl.String, "cause and kind of job, as text")


def build_critical_table(training: Training) -> pl.DataFrame:
    """Build the rows of `CRITICAL_TABLE`: sums of the critical paths of the complete steps, largest first."""
    complete = sum_lane_steps(training).filter("is_complete").select("step").unique()
    path = find_critical_path(training).join(complete, on="step", how="semi")
    duration = pl.col("end_ns") - pl.col("start_ns")
    step_count = max(path["step"].n_unique(), 1)
    return (
        path.group_by("stage", "cause", "kind", "role")
        .agg(step_count=pl.col("step").n_unique(), segment_count=pl.len(), total_ns=duration.sum())
        .with_columns(
            time_ns=pl.col("total_ns") / step_count,
            fraction=pl.col("total_ns") / pl.col("total_ns").sum(),  # integers: the order has no influence
            most_gain_ns=pl.col("total_ns") / (10 * step_count),
        )
        .sort("time_ns", "stage", "cause", "kind", "role", descending=[True, False, False, False, False])
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def build_path_table(training: Training) -> pl.DataFrame:
    """Build the rows of `PATH_TABLE`: the critical path of every step."""
    labels = training.lanes.select("lane", "label")
    return (
        find_critical_path(training)
        .select(CRITICAL_PATH.names())
        .join(labels, on="lane", how="left", maintain_order="left")
        .with_columns(pl.col("start_ns", "end_ns") - training.zero_ns)
        .pipe(conform, build_table_schema(_PATH_COLUMNS))
    )


def _add_activity(table: pl.DataFrame) -> pl.DataFrame:
    activity = pl.concat_str("cause", "kind", separator=": ", ignore_nulls=True)
    return table.with_columns(activity=activity.str.replace_all("_", " "))


CRITICAL_TABLE = Table(
    name="critical",
    title="Critical path, per step",
    columns=_COLUMNS,
    caption=(
        "the chain of work and waiting that determines the length of a complete step, across lanes;"
        " gain: 10 % of the time, less if another path is then the longest"
    ),
    build=build_critical_table,
    view=View(
        columns=("time_ns", "fraction", "most_gain_ns", "stage", "role", _ACTIVITY),
        derive=_add_activity,
        only=pl.col("fraction") >= _LEAST_FRACTION,
        hidden="{} are below 0.05 % of the path",
    ),
)
PATH_TABLE = Table(
    name="critical_path",
    title="Critical path of each step",
    columns=_PATH_COLUMNS,
    caption="the chain of work and waiting that determines the length of each step, in order of time",
    build=build_path_table,
    view=View(
        columns=("step", "start_ns", "end_ns", "label", "stage", "role", _ACTIVITY), derive=_add_activity
    ),
)
