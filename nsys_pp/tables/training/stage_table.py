"""Compute, bubble and causes of the bubble in a step, by stage and by lane."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import BUBBLE_CAUSES, MEANINGS, Training
from nsys_pp.tables.training.lane_steps import POSITION_COLUMNS, select_whole_steps

_MEANS = ("span_ns", "compute_ns", "pause_ns", "bubble_ns")
_CAUSE_COLUMNS = tuple(f"{cause}_ns" for cause in BUBBLE_CAUSES)
_TIMES = (
    Column("lane_count", pl.Int64, "number of lanes", priority=1),
    Column("step_count", pl.Int64, "complete steps; all times are means over them and the lanes", priority=1),
    Column("span_ns", pl.Float64, "length of a step: compute, pauses and bubble", display_unit="ms"),
    Column("compute_ns", pl.Float64, MEANINGS["compute"], display_unit="ms"),
    Column("pause_ns", pl.Float64, MEANINGS["pause"]),
    Column(
        "bubble_ns",
        pl.Float64,
        "rest of the span: the sum of its causes, and of its positions in steps with forwards and backwards",
        display_unit="ms",
    ),
    Column("bubble_fraction", pl.Float64, "bubble over span", decimals=1),
    *(
        Column(f"{statistic}_{name}_ns", pl.Float64, f"{meaning} {name} in a step, over steps and lanes")
        for name in ("span", "compute", "bubble")
        for statistic, meaning in (("median", "median"), ("min", "smallest"), ("max", "largest"))
    ),
    Column("warm_up_bubble_ns", pl.Float64, "bubble before the first backward"),
    Column("steady_bubble_ns", pl.Float64, "bubble from there to the last forward"),
    Column("cool_down_bubble_ns", pl.Float64, "bubble after that"),
    *(Column(f"{cause}_ns", pl.Float64, f"bubble: {MEANINGS[cause]}") for cause in BUBBLE_CAUSES),
    Column(
        "ideal_bubble_ns",
        pl.Float64,
        "bubble of the same jobs in the same order without gaps between them",
        heading="Ideal",
        display_unit="ms",
        priority=4,
    ),
    Column(
        "gain_ns",
        pl.Float64,
        "bubble beyond the ideal one: possible gain in a step",
        display_unit="ms",
        priority=4,
        # A step can be better than the ideal, which uses median lengths of jobs.
        note="gain: bubble beyond the ideal; negative: better than the ideal of median jobs",
    ),
)
_STAGE_COLUMNS = (Column("stage", pl.Int64, "number of the stage; null: unknown"), *_TIMES)
_LANE_COLUMNS = (
    Column("lane", pl.UInt32, "number of the lane"),
    Column("label", pl.String, "name of the lane", heading="Lane"),
    Column("stage", pl.Int64, "its stage; null: unknown"),
    *_TIMES,
)
_CAUSES = Column(
    "causes", pl.String, "the largest causes of the bubble, with their shares", heading="Causes of the bubble"
)
_SHOWN = ("span_ns", "bubble_ns", "bubble_fraction", "ideal_bubble_ns", "gain_ns", "compute_ns", "step_count")
_MOST_CAUSES, _LEAST_SHARE = 3, 0.005


def build_stage_table(training: Training) -> pl.DataFrame:
    """Build the rows of `STAGE_TABLE`, by stage."""
    table = _sum_up(training, "stage").sort("stage", nulls_last=True)
    return table.pipe(conform, build_table_schema(_STAGE_COLUMNS))


def build_lane_table(training: Training) -> pl.DataFrame:
    """Build the rows of `LANE_TABLE`, by lane."""
    lanes = training.lanes.select("lane", "label", "stage")
    table = _sum_up(training, "lane").join(lanes, on="lane", how="left").sort("lane")
    return table.pipe(conform, build_table_schema(_LANE_COLUMNS))


def _sum_up(training: Training, by: str) -> pl.DataFrame:
    """Sum up the complete steps by stage or by lane."""
    distributions = [
        getattr(pl.col(f"{name}_ns"), statistic)().alias(f"{statistic}_{name}_ns")
        for name in ("span", "compute", "bubble")
        for statistic in ("median", "min", "max")
    ]
    # Null in steps without an ideal: the gain must not compare different steps.
    gain = pl.col("bubble_ns") - pl.col("ideal_bubble_ns")
    return (
        select_whole_steps(training)
        .group_by(by)
        .agg(
            *distributions,
            pl.col(*_MEANS, *POSITION_COLUMNS, *_CAUSE_COLUMNS, "ideal_bubble_ns").mean(),
            lane_count=pl.col("lane").n_unique(),
            step_count=pl.col("step").n_unique(),
            gain_ns=gain.mean(),
        )
        .with_columns(bubble_fraction=(pl.col("bubble_ns") / pl.col("span_ns")).fill_nan(None))
    )


def _add_causes(table: pl.DataFrame) -> pl.DataFrame:
    """Add the largest causes of each bubble with their shares, as text: "message wait 63%, idle 21%"."""
    shares = (
        table.select(_CAUSE_COLUMNS)
        .with_row_index("row")
        .unpivot(index="row", variable_name="cause", value_name="time_ns")
        .with_columns(share=pl.col("time_ns") / pl.col("time_ns").sum().over("row"))
        .filter(pl.col("share").fill_nan(0) >= _LEAST_SHARE)  # NaN without bubble
        .sort("row", "share", descending=[False, True], maintain_order=True)
        .group_by("row", maintain_order=True)
        .head(_MOST_CAUSES)
    )
    words = pl.col("cause").str.strip_suffix("_ns").str.replace_all("_", " ")
    percent = (100 * pl.col("share")).round().cast(pl.Int64)
    texts = shares.group_by("row", maintain_order=True).agg(
        causes=pl.format("{} {}%", words, percent).str.join(", ")
    )
    rows = table.with_row_index("row")
    return rows.join(texts, on="row", how="left", maintain_order="left").drop("row")


STAGE_TABLE = Table(
    name="stages",
    title="Stages, per step",
    columns=_STAGE_COLUMNS,
    caption="complete steps, mean over steps and lanes; causes: their shares of the bubble",
    build=build_stage_table,
    view=View(columns=("stage", *_SHOWN, "lane_count", _CAUSES), derive=_add_causes),
)
LANE_TABLE = Table(
    name="lanes",
    title="Lanes, per step",
    columns=_LANE_COLUMNS,
    caption="complete steps, mean over steps; causes: their shares of the bubble",
    build=build_lane_table,
    view=View(columns=("label", "stage", *_SHOWN, _CAUSES), derive=_add_causes),
)
