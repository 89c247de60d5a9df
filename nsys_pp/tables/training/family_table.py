"""Families of the kernels of a training, by kind of job, by step and by stage."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from nsys_pp.families.classify import classify_operations
from nsys_pp.frames.aggregates import FAMILY
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import JOB_KIND, Training
from nsys_pp.tables.tensor_cores import TENSOR_CORE_COLUMNS, share_tensor_cores, sum_tensor_cores
from nsys_pp.tables.training.lane_steps import select_whole_steps

FAMILY_TIMES = (
    Column("count", pl.Int64, "kernels, and graphs traced as a whole"),
    Column("total_ns", pl.Int64, "sum of their durations, over all lanes"),
    Column("mean_ns", pl.Float64, "mean duration"),
)
FAMILY_COLUMNS = (
    *(replace(column, decimals=1) for column in TENSOR_CORE_COLUMNS),
    Column("family", FAMILY, "family of the kernels, by their names; unknown: no rule matches"),
)
_KIND_COLUMNS = (
    Column(
        "kind", JOB_KIND, "kind of job around the launch; null: outside all jobs", null_text="outside jobs"
    ),
    *FAMILY_TIMES,
    Column("fraction", pl.Float64, "share of the kernels of the kind", decimals=1),
    *FAMILY_COLUMNS,
)
_STEP_COLUMNS = (
    Column("step", pl.Int64, "number of the step"),
    *FAMILY_TIMES,
    Column("fraction", pl.Float64, "share of the kernels of the step", decimals=1),
    *FAMILY_COLUMNS,
)
_STAGE_COLUMNS = (
    Column("stage", pl.Int64, "pipeline stage"),
    *FAMILY_TIMES,
    Column("fraction", pl.Float64, "share of the kernels of the stage", decimals=1),
    *FAMILY_COLUMNS,
)


def classify_training(training: Training) -> pl.DataFrame:
    """Return the kernels of a training (`Training.kernels`) with the columns of `KERNEL_FAMILIES`; each name is classified once."""
    named = training.kernels.with_columns(name=pl.coalesce("full_name", "name"))
    return classify_operations(named)


def build_family_table(training: Training) -> pl.DataFrame:
    """Build the rows of `FAMILY_TABLE`: complete steps, by kind of job."""
    kernels = _classify_complete(training)
    return sum_families(kernels.rename({"kind": "op_kind", "job_kind": "kind"}), "kind", _KIND_COLUMNS)


def build_step_family_table(training: Training) -> pl.DataFrame:
    """Build the rows of `STEP_FAMILY_TABLE`, by step."""
    steps = training.steps.select("lane", "step")
    return sum_families(
        classify_training(training).join(steps, on=["lane", "step"], how="semi"), "step", _STEP_COLUMNS
    )


def build_stage_family_table(training: Training) -> pl.DataFrame:
    """Build the rows of `STAGE_FAMILY_TABLE`: complete steps of lanes of known stages, by stage."""
    stages = training.lanes.select("lane", "stage").drop_nulls()
    return sum_families(_classify_complete(training).join(stages, on="lane"), "stage", _STAGE_COLUMNS)


def _classify_complete(training: Training) -> pl.DataFrame:
    """Return the classified kernels of complete steps."""
    complete = select_whole_steps(training).select("lane", "step")
    return classify_training(training).join(complete, on=["lane", "step"], how="semi")


def sum_families(kernels: pl.DataFrame, key: str, columns: Sequence[Column]) -> pl.DataFrame:
    """Sum kernels by a key and family; families of a key by total."""
    total = pl.col("total_ns")
    sums = kernels.group_by(key, "family").agg(pl.col("count", "total_ns").sum(), **sum_tensor_cores(total))
    whole = total.sum().over(key)
    return (
        sums.with_columns(
            mean_ns=total / pl.col("count"),
            fraction=pl.when(whole > 0).then(total / whole),
            **share_tensor_cores(total),
        )
        .sort(key, "total_ns", "family", descending=[False, True, False], nulls_last=True)
        .pipe(conform, build_table_schema(columns))
    )


_CAPTION = (
    "durations of kernels, summed over lanes: concurrent kernels all count; families by the names of kernels;"
    " tensor cores: share of the durations of products"
)
FAMILY_TABLE = Table(
    name="families",
    title="Families of kernels by kind of job",
    columns=_KIND_COLUMNS,
    caption=f"{_CAPTION}; kernels of complete steps",
    build=build_family_table,
    view=View(columns=tuple(column.name for column in _KIND_COLUMNS)),
)
STEP_FAMILY_TABLE = Table(
    name="step_families",
    title="Families of kernels by step",
    columns=_STEP_COLUMNS,
    caption=_CAPTION,
    build=build_step_family_table,
    view=View(columns=tuple(column.name for column in _STEP_COLUMNS)),
)
STAGE_FAMILY_TABLE = Table(
    name="stage_families",
    title="Families of kernels by stage",
    columns=_STAGE_COLUMNS,
    caption=f"{_CAPTION}; kernels of complete steps; empty where no stage is known",
    build=build_stage_family_table,
    view=View(columns=tuple(column.name for column in _STAGE_COLUMNS)),
)
