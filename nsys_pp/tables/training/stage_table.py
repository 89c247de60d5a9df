"""A row per stage, or per lane: where the time of its steps went."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import BUBBLE_CAUSES, Training
from nsys_pp.tables.training.lane_steps import POSITION_COLUMNS, sum_lane_steps
from nsys_pp.tables.training.table import Columns, build_table, schema_of

_MEANS = ("span_ns", "compute_ns", "pause_ns", "bubble_ns")
_CAUSE_COLUMNS = tuple(f"{cause}_ns" for cause in BUBBLE_CAUSES)
_SAYS = {
    "message_wait": "waiting for a message that its peer has not begun",
    "transfer": "a message that is needed is on its way",
    "collective_wait": "waiting for a collective that others have not begun",
    "collective": "a collective that is needed is under way",
    "copy": "a copy that is needed is under way",
    "data": "the host loads data",
    "host": "nothing is in the way: the host came late",
    "idle": "nothing to do any more in the step",
}
_TIMES: Columns = {
    "lane_count": (pl.Int64, "its lanes"),
    "step_count": (pl.Int64, "complete steps; all times are means over them and the lanes"),
    "span_ns": (pl.Float64, "a step: compute, pauses and bubble"),
    "compute_ns": (pl.Float64, "kernels other than communication"),
    "pause_ns": (pl.Float64, "between two kernels, too short for a bubble"),
    "bubble_ns": (
        pl.Float64,
        "the rest: the sum of its causes, and of its positions where steps have forwards and backwards",
    ),
    "bubble_fraction": (pl.Float64, "bubble over span"),
    **{
        f"{which}_{name}_ns": (pl.Float64, f"{says} of it in a step, over steps and lanes")
        for name in ("span", "compute", "bubble")
        for which, says in (("median", "median"), ("min", "least"), ("max", "most"))
    },
    "warm_up_bubble_ns": (pl.Float64, "bubble before the first backward"),
    "steady_bubble_ns": (pl.Float64, "bubble from there to the last forward"),
    "cool_down_bubble_ns": (pl.Float64, "bubble after that"),
    **{f"{cause}_ns": (pl.Float64, f"bubble: {_SAYS[cause]}") for cause in BUBBLE_CAUSES},
    "ideal_bubble_ns": (pl.Float64, "of the same jobs in the same order with nothing in between"),
    "gain_ns": (pl.Float64, "bubble beyond the ideal one: what there is to gain in a step"),
}
_STAGE_COLUMNS: Columns = {"stage": (pl.Int64, "its number; null where unknown"), **_TIMES}
_LANE_COLUMNS: Columns = {
    "lane": (pl.UInt32, "its number"),
    "label": (pl.String, "its name"),
    "stage": (pl.Int64, "its stage; null where unknown"),
    **_TIMES,
}


def build_stage_table(training: Training) -> pl.DataFrame:
    """Make the table of stages, by stage; `STAGE_TABLE` says what its columns mean."""
    table = _sum_up(training, "stage").sort("stage", nulls_last=True)
    return table.pipe(conform, schema_of(_STAGE_COLUMNS))


def build_lane_table(training: Training) -> pl.DataFrame:
    """Make the same table of lanes, by lane; `LANE_TABLE` says what its columns mean."""
    lanes = training.lanes.select("lane", "label", "stage")
    table = _sum_up(training, "lane").join(lanes, on="lane", how="left").sort("lane")
    return table.pipe(conform, schema_of(_LANE_COLUMNS))


def _sum_up(training: Training, by: str) -> pl.DataFrame:
    """Sum up the complete steps by stage or by lane."""
    spread = [
        getattr(pl.col(f"{name}_ns"), which)().alias(f"{which}_{name}_ns")
        for name in ("span", "compute", "bubble")
        for which in ("median", "min", "max")
    ]
    # What has no ideal has no gain; its bubble must not be held against others' ideal.
    gain = pl.col("bubble_ns") - pl.col("ideal_bubble_ns")
    return (
        sum_lane_steps(training)
        .filter("is_complete")
        .group_by(by)
        .agg(
            *spread,
            pl.col(*_MEANS, *POSITION_COLUMNS, *_CAUSE_COLUMNS, "ideal_bubble_ns").mean(),
            lane_count=pl.col("lane").n_unique(),
            step_count=pl.col("step").n_unique(),
            gain_ns=gain.mean(),
        )
        .with_columns(bubble_fraction=(pl.col("bubble_ns") / pl.col("span_ns")).fill_nan(None))
    )


STAGE_TABLE = build_table("Stages, per step", _STAGE_COLUMNS, build_stage_table)
LANE_TABLE = build_table("Lanes, per step", _LANE_COLUMNS, build_lane_table)
