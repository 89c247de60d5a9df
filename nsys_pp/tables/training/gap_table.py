"""Longest gaps between kernels, with their cause and the activity of the host."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import whole_numbers
from nsys_pp.arrays.search import find_first, find_last
from nsys_pp.arrays.segments import expand_windows
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import MOST_EARLY_NS
from nsys_pp.frames.table import Column, Table, View, build_table_schema
from nsys_pp.frames.training import BUBBLE_CAUSES, CAUSE, GAPS, Training

_SHOWN = 10  # on a terminal
_NAME_WIDTH = 40  # on a terminal: some programs write whole records as names
_GAP = ["lane", "start_ns", "end_ns"]
_COLUMNS = (
    Column("lane", pl.String, "name of the lane, `lanes.label`; in `jobs`, `lane` is its number"),
    Column("step", pl.Int64, "step in which it ends; null: outside all steps"),
    Column("start_ns", pl.Int64, "since the start of the earliest session", heading="Start"),
    Column("length_ns", pl.Int64, "time between two kernels that are not communication", priority=9),
    Column("cause", CAUSE, "cause of most of it; null: outside all steps", priority=9),
    Column("cause_fraction", pl.Float64, "share of this cause in the gap", heading="Share", decimals=0),
    Column(
        "range",
        pl.String,
        "innermost range on the thread that launches the next kernel, in most of the gap; null: none",
        is_name=True,
        priority=8,
    ),
    Column("range_fraction", pl.Float64, "share of the gap in this range", heading="In range", decimals=0),
    Column("call", pl.String, "CUDA call of this thread in most of the gap; null: none", priority=8),
    Column("call_fraction", pl.Float64, "share of the gap in this call", heading="In call", decimals=0),
    Column(
        "os_call",
        pl.String,
        "call of the operating system of this thread in most of the gap; null: none, or not recorded",
        heading="OS call",
        priority=8,
    ),
    Column("os_call_fraction", pl.Float64, "share of the gap in this call", heading="In OS call", decimals=0),
    Column(
        "launch_delay_ns",
        pl.Int64,
        "from the launch of the next kernel to the kernel: longer than the gap if the host was ahead; null: unknown",
        heading="Launched before",
        display_unit="us",
        priority=4,
    ),
)


def build_gap_table(training: Training) -> pl.DataFrame:
    """Build the rows of `GAP_TABLE`, by descending length."""
    rows = training.gaps
    gaps = rows.unique(_GAP, keep="first", maintain_order=True)
    length, delay = pl.col("end_ns") - pl.col("start_ns"), pl.col("end_ns") - pl.col("launch_ns")
    for kind in GAPS["activity"].categories:  # type: ignore[attr-defined]
        longest = rows.filter(pl.col("activity") == kind).unique(_GAP, keep="first", maintain_order=True)
        columns = [
            pl.col("name").cast(pl.String).alias(kind),
            (pl.col("time_ns") / length).alias(f"{kind}_fraction"),
        ]
        gaps = gaps.join(longest.select(*_GAP, *columns), on=_GAP, how="left", maintain_order="left")
    return (
        gaps.join(_find_causes(gaps, training.lane_states), on=_GAP, how="left", maintain_order="left")
        .join(training.lanes.select("lane", "label"), on="lane", how="left", maintain_order="left")
        .with_columns(
            lane="label",
            length_ns=length,
            launch_delay_ns=pl.when(delay >= -MOST_EARLY_NS).then(delay),
            start_ns=pl.col("start_ns") - training.zero_ns,
        )
        .sort(-pl.col("length_ns"), "start_ns", "lane")
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def _find_causes(gaps: pl.DataFrame, lane_states: pl.DataFrame) -> pl.DataFrame:
    """Find the cause of most of each gap: `_GAP`, cause, cause_fraction; gaps outside of steps are left out."""
    lane, start, end = (whole_numbers(gaps[name]) for name in _GAP)
    of_lane, since = whole_numbers(lane_states["lane"]), lane_states["start_ns"].to_numpy()
    at = find_last(lane, start, of_lane, since)
    first = np.where(at < 0, find_first(lane, start, of_lane, since), at)
    last = find_last(lane, end, of_lane, since, is_before=True)
    is_known = (first >= 0) & (last >= first)
    stop = np.where(is_known, last + 1, first)
    states = lane_states.select("cause", since="start_ns", until="end_ns")[expand_windows(first, stop)]
    inside = pl.min_horizontal("until", "end_ns") - pl.max_horizontal("since", "start_ns")
    return (
        gaps.select(_GAP)[np.repeat(np.arange(len(gaps)), stop - first)]
        .hstack(states)
        .filter(pl.col("cause").is_in(BUBBLE_CAUSES), inside > 0)
        .group_by(*_GAP, "cause")
        .agg(cause_ns=inside.sum())
        .sort("cause_ns", "cause", descending=[True, False])
        .unique(_GAP, keep="first", maintain_order=True)
        .select(*_GAP, "cause", cause_fraction=pl.col("cause_ns") / (pl.col("end_ns") - pl.col("start_ns")))
    )


def _cut_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Cut long names of ranges."""
    name = pl.col("range")
    is_long = name.str.len_chars() > _NAME_WIDTH
    return frame.with_columns(
        range=pl.when(is_long).then(name.str.head(_NAME_WIDTH - 1) + "…").otherwise(name)
    )


GAP_TABLE = Table(
    name="gaps",
    title="Longest gaps",
    columns=_COLUMNS,
    caption="range, call: of the thread that launches the next kernel, in most of the gap",
    build=build_gap_table,
    view=View(
        columns=(
            *("lane", "step", "start_ns", "length_ns", "cause", "cause_fraction", "range", "range_fraction"),
            *("call", "call_fraction", "os_call", "os_call_fraction", "launch_delay_ns"),
        ),
        derive=_cut_names,
        only=pl.int_range(pl.len()) < _SHOWN,
        hidden="the longest gaps: {} that are kept, 50 per lane and 3 per step",
    ),
)
