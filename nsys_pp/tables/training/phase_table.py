"""Inferred phases of steps, per lane: times on the GPU."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import Training

_COLUMNS = (
    Column("lane", pl.String, "name of the lane, `lanes.label`; in `jobs`, `lane` is its number"),
    Column(
        "phase",
        pl.String,
        "forward, backward, optimizer, or the number of a segment without a certain meaning",
    ),
    Column(
        "number",
        pl.Int64,
        "number among the phases of its kind in the step, from 0: of a micro-batch, or of several where a pipeline begins",
        heading="No.",
        is_optional=True,
        priority=9,
    ),
    Column("step_count", pl.Int64, "complete steps that have it", priority=4),
    Column(
        "median_ns",
        pl.Float64,
        "median time from its first operation to its last one",
        heading="Time",
        display_unit="ms",
        priority=9,
    ),
    Column(
        "median_busy_ns",
        pl.Float64,
        "median time in which its operations run",
        heading="Busy",
        display_unit="ms",
        priority=8,
    ),
    Column(
        "busy_fraction", pl.Float64, "share of its time in which its operations run", decimals=1, priority=8
    ),
    Column(
        "fraction",
        pl.Float64,
        "share of its time in its steps",
        heading="Of the step",
        decimals=1,
        priority=9,
    ),
    Column(
        "op_count",
        pl.Int64,
        "operations, median of steps",
        heading="Operations",
        decimals=0,
        priority=5,
    ),
    Column(
        "confidence_fraction",
        pl.Float64,
        "confidence in the phases of the lane, 0 to 1, given its steps",
        heading="Confidence",
        decimals=0,
        priority=7,
    ),
)


def build_phase_table(training: Training) -> pl.DataFrame:
    """Build the rows of `PHASE_TABLE`, by lane and order in the step; empty where no phase is inferred."""
    steps = training.steps.select("lane", "step", "is_partial", span_ns=pl.col("end_ns") - pl.col("start_ns"))
    phases = training.phases.join(steps, on=["lane", "step"])
    complete = phases.filter(~pl.col("is_partial"))
    time = pl.col("end_ns") - pl.col("start_ns")
    is_segment = pl.col("kind") == "segment"
    return (
        (phases if complete.is_empty() else complete)
        .group_by("lane", "kind", "index")
        .agg(
            position=pl.col("number").median(),
            step_count=pl.col("step").n_unique(),
            median_ns=time.median(),
            median_busy_ns=pl.col("busy_ns").median(),
            busy_fraction=(pl.col("busy_ns").sum() / time.sum()).fill_nan(None),
            fraction=(time.sum() / pl.col("span_ns").sum()).fill_nan(None),
            op_count=pl.col("op_count").median().round().cast(pl.Int64),
            confidence_fraction=pl.col("confidence").min(),
        )
        .sort("lane", "position", "kind", "index")
        .join(training.lanes.select("lane", "label"), on="lane", maintain_order="left")
        .with_columns(
            lane="label",
            phase=pl.when(is_segment)
            .then(pl.format("segment {}", pl.col("index") + 1))
            .otherwise(pl.col("kind").cast(pl.String)),
            number="index",
        )
        .pipe(conform, build_table_schema(_COLUMNS))
    )


PHASE_TABLE = Table(
    name="phases",
    title="Inferred phases of steps, per lane",
    columns=_COLUMNS,
    caption=(
        "inferred from launches, as the steps; medians over complete steps, from the first to the last operation"
        " launched in the phase; launches between phases have no certain one"
    ),
    build=build_phase_table,
    empty="no phase of a step is inferred",
    view=View(
        columns=(
            *(
                "lane",
                "number",
                "step_count",
                "median_ns",
                "median_busy_ns",
                "busy_fraction",
                "fraction",
            ),
            *("op_count", "confidence_fraction", "phase"),
        )
    ),
)
