"""One step of a training, with as many ranks as a page can show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import polars as pl

from nsys_pp.frames.training import BUBBLE_CAUSES, Training
from nsys_pp.output.chart.apart import bring_near

MOST_BARS = 100_000
"""Most jobs, messages and bubbles of a chart in a page; a page with two charts of so many has 5 MB."""
_FRAMES = ("steps", "jobs", "lane_states", "ideal", "transfers")


class TooManyBarsError(ValueError):
    """One rank alone has more bars than a chart in a page."""


def select_step(
    training: Training, step: int, *, named: Collection[int] = (), most_bars: int = MOST_BARS
) -> Training:
    """Select the rows of one step, for a chart.

    If there are too many, ranks are left out, with a note: `named` ones are kept, and of each stage those that compute longest.

    Args:
        training: The training.
        step: The step.
        named: Lanes to keep.
        most_bars: Most jobs, messages and bubbles.

    Raises:
        TooManyBarsError: Not even one rank can be shown.
        NsysPPError: Clocks are months apart within a lane.
    """
    frames: dict[str, Any] = {name: getattr(training, name).filter(step=step) for name in _FRAMES}
    of_step = replace(training, **frames, notes=[])
    count = _count_bars(of_step)
    if count > most_bars:
        of_step = _select_lanes(of_step, most_bars, count, named)
    if _count_bars(of_step) > most_bars:
        raise TooManyBarsError(
            f"This step has {count:,} bars, too many for this page; `nsys-pp chart REPORT... --steps {step}:{step + 1} -o step.html`"
            " draws them."
        )
    return bring_near(of_step)


def _count_bars(training: Training) -> int:
    return int(_count_by_lane(training)["count"].sum())


def _count_by_lane(training: Training) -> pl.DataFrame:
    """Count the bars of each lane: lane, count; without jobs, compute is drawn as jobs."""
    states = training.lane_states
    if len(training.jobs):
        states = states.filter(pl.col("cause").cast(pl.String).is_in(BUBBLE_CAUSES))
    parts = [training.jobs, states, training.transfers.select(lane="receiver")]
    lanes = pl.concat([part.select("lane") for part in parts])
    return lanes.group_by("lane").agg(count=pl.len())


def _select_lanes(training: Training, most_bars: int, count: int, named: Collection[int]) -> Training:
    """Keep the named lanes, and in turn the next lane of each stage by descending compute."""
    length = pl.col("end_ns") - pl.col("start_ns")
    compute = training.lane_states.filter(cause="compute").group_by("lane").agg(compute_ns=length.sum())
    ranked = (
        training.lanes.join(compute, on="lane", how="left")
        .join(_count_by_lane(training), on="lane", how="left")
        .with_columns(pl.col("compute_ns", "count").fill_null(0))
        .with_columns(
            turn=pl.col("compute_ns").rank("ordinal", descending=True).over("stage"),
            is_named=pl.col("lane").is_in([*named]),
        )
        .sort("is_named", "turn", "stage", "lane", descending=[True, False, False, False])
        .filter(pl.col("count").cum_sum() <= most_bars)
    )
    lanes = training.lanes.filter(pl.col("lane").is_in(ranked["lane"].implode())).sort("lane")
    note = (
        f"{len(lanes):,} of {len(training.lanes):,} ranks are shown, as the step has {count:,} bars: those that the verdict names,"
        " and of each stage those that compute longest"
    )
    return _renumber(training, lanes, note) if len(lanes) else training


def _renumber(training: Training, lanes: pl.DataFrame, note: str) -> Training:
    """Keep only these lanes, numbered from 0; a wait for another lane is for an unknown one."""
    numbers = lanes.select("lane", number=pl.int_range(pl.len(), dtype=pl.UInt32))
    columns = {"transfers": ("sender", "receiver")}
    frames: dict[str, Any] = {"lanes": lanes.with_columns(lane=pl.int_range(pl.len(), dtype=pl.UInt32))}
    for name in _FRAMES:
        frame = getattr(training, name)
        for column in columns.get(name, ("lane",)):
            frame = (
                frame.join(numbers, left_on=column, right_on="lane", how="inner", maintain_order="left")
                .with_columns(pl.col("number").alias(column))
                .drop("number")
            )
        frames[name] = frame
    states = frames["lane_states"]
    waits = states.select("waits_for").join(
        numbers, left_on="waits_for", right_on="lane", how="left", maintain_order="left"
    )
    frames["lane_states"] = states.with_columns(waits_for=waits["number"])
    return replace(training, **frames, notes=[note])
