"""Notes on clocks of GPUs that fell in a step, or that are lower than on other GPUs."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.report import is_clock
from nsys_pp.frames.training import Training
from nsys_pp.units import format_count, format_duration

_LOW = 0.95  # of the usual clock; clocks of a GPU under load vary by some steps of 15 MHz
_FEWEST = 3  # steps or GPUs, of which the median is usual
_MOST_NOTES = 3
_REASON = "nsys does not record why (power, temperature and set limits are possible reasons)"


def describe_clocks(training: Training, sums: pl.DataFrame) -> list[str]:
    """Describe clocks that fell in a step, and GPUs with lower clocks than others, the largest differences first.

    A clock is the mean during the kernels of a step, of samples. It fell if it is below 95 % of the median of the steps of the
    GPU; it is low if the median of its steps is below 95 % of the median of all GPUs.

    Args:
        training: The training.
        sums: `METRIC_SUMS`.
    """
    of_clocks = sums.filter(
        pl.col("metric").map_elements(is_clock, return_dtype=pl.Boolean), pl.col("group") == "compute"
    )
    clocks = (
        of_clocks.drop_nulls("step")
        .with_columns(clock=pl.col("integral") / pl.col("time_ns"))
        .join(training.lanes.select("lane", "label", "machine", "gpu"), on="lane")
        .with_columns(
            usual=pl.col("clock").median().over("lane"), step_count=pl.len().over("lane"), share=pl.lit(0.0)
        )
        .with_columns(share=pl.col("clock") / pl.col("usual"))
    )
    return [*_describe_falls(training, clocks), *_describe_low(clocks)]


def _describe_falls(training: Training, clocks: pl.DataFrame) -> list[str]:
    spans = training.steps.select("lane", "step", length=pl.col("end_ns") - pl.col("start_ns"))
    lengths = spans.with_columns(usual_length=pl.col("length").median().over("lane"))
    fallen = (
        clocks.filter(pl.col("step_count") >= _FEWEST, pl.col("share") < _LOW)
        .join(lengths, on=["lane", "step"], how="left", maintain_order="left")
        .sort("lane", "share", "step")
    )
    worst = fallen.group_by("lane", maintain_order=True).agg(pl.all().first(), count=pl.len())
    notes = []
    for row in worst.sort("share", "lane").head(_MOST_NOTES).iter_rows(named=True):
        more = f", and in {format_count(row['count'] - 1, 'more step')}" if row["count"] > 1 else ""
        notes.append(
            f"the clock of {_name(row)} fell from {_format(row['usual'])}, the median of its steps, to"
            f" {_format(row['clock'])} in step {row['step']}{more}; the step took"
            f" {format_duration(int(row['length']))}, the median is {format_duration(int(row['usual_length']))}. {_REASON}"
        )
    if len(worst) > _MOST_NOTES:
        notes.append(f"the clocks of {format_count(len(worst) - _MOST_NOTES, 'more GPU')} fell in steps")
    return notes


def _describe_low(clocks: pl.DataFrame) -> list[str]:
    lanes = clocks.group_by("lane", maintain_order=True).agg(
        pl.col("label", "machine", "gpu", "usual").first()
    )
    if len(lanes) < _FEWEST:
        return []
    median = float(lanes["usual"].median())  # type: ignore[arg-type]
    low = lanes.filter(pl.col("usual") < _LOW * median).sort("usual", "lane")
    notes = [
        f"the clock of {_name(row)} is {_format(row['usual'])}, the median of all GPUs {_format(median)}. {_REASON}"
        for row in low.head(_MOST_NOTES).iter_rows(named=True)
    ]
    if len(low) > _MOST_NOTES:
        notes.append(f"the clocks of {format_count(len(low) - _MOST_NOTES, 'more GPU')} are low")
    return notes


def _name(row: dict[str, object]) -> str:
    place = f"{row['machine']} {row['gpu']}"
    return str(row["label"]) if row["label"] == place else f"{row['label']} ({place})"


def _format(clock_mhz: float) -> str:
    return f"{clock_mhz:,.0f} MHz"
