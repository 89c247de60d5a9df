"""Sums of sampled metrics over intervals of a lane: by step, kind of job, phase, family of kernels and cause of bubbles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.causes import BUBBLE_CAUSES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.requested import MEASURED_TIMES, METRIC_SUMS
from nsys_pp.frames.training import Training

Values = NDArray[np.float64]


def list_measured(training: Training) -> pl.DataFrame:
    """List the intervals of lanes in which metrics are measured (`MEASURED_TIMES`), on the trace's clock.

    Those of families of kernels are not in a training.
    """
    none = pl.lit(None, pl.String)
    no_step = pl.lit(None, pl.Int64)
    states = training.lane_states.with_columns(pl.col("cause").cast(pl.String))
    is_bubble = pl.col("cause").is_in(BUBBLE_CAUSES)
    parts = [
        training.steps.with_columns(group=pl.lit("steps"), item=none),
        states.filter(pl.col("cause") == "compute").with_columns(group=pl.lit("compute"), item=none),
        training.jobs.with_columns(group=pl.lit("jobs"), item=pl.col("kind").cast(pl.String), step=no_step),
        training.phases.with_columns(
            group=pl.lit("phases"), item=pl.col("kind").cast(pl.String), step=no_step
        ),
        states.filter(is_bubble).with_columns(group=pl.lit("bubbles"), item=pl.col("cause"), step=no_step),
    ]
    return pl.concat(
        [
            conform(part.drop_nulls(["start_ns", "end_ns"]).select(*MEASURED_TIMES), MEASURED_TIMES)
            for part in parts
        ]
    )


def select_in_steps(kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Keep the intervals that start in a step.

    Args:
        kernels: Any frame with `start_ns`.
        steps: `start_ns` and `end_ns` of the steps of the lane, one after the other.
    """
    if steps.is_empty():
        return kernels.clear()
    steps = steps.sort("start_ns")
    at = np.searchsorted(steps["start_ns"].to_numpy(), kernels["start_ns"].to_numpy(), side="right") - 1
    ends = steps["end_ns"].to_numpy()[np.maximum(at, 0)]
    return kernels.filter(pl.Series((at >= 0) & (kernels["start_ns"].to_numpy() < ends)))


def sum_metrics(measured: pl.DataFrame, metrics: Mapping[str, pl.DataFrame], *, lane: int) -> pl.DataFrame:
    """Sum metrics over the intervals of a lane.

    A value is valid until the next sample; that of the last one is not used. Time of several intervals of an item counts once.

    Args:
        measured: `MEASURED_TIMES` of the lane, on the clock of the samples.
        metrics: `METRIC_VALUES` by name of the metric.
        lane: The lane.

    Returns:
        `METRIC_SUMS`, in any order; without items that no sample is valid in.
    """
    items = [
        (key, *_join(of_item["start_ns"].to_numpy(), of_item["end_ns"].to_numpy(), of_item["step"]))
        for key, of_item in measured.sort("start_ns").group_by("group", "item", maintain_order=True)
    ]
    rows = [
        (lane, metric, group, item, *sums)
        for metric, samples in metrics.items()
        for (group, item), start, end, step in items
        for sums in _sum(samples["time_ns"].to_numpy(), samples["value"].to_numpy(), start, end, step)
    ]
    return pl.DataFrame(rows, schema=METRIC_SUMS, orient="row")


def _join(start: Int64s, end: Int64s, step: pl.Series) -> tuple[Int64s, Int64s, pl.Series]:
    """Join intervals that overlap or touch, in order of their starts; steps are apart already."""
    if step.null_count() < len(step) or not len(start):
        return start, end, step
    reach = np.maximum.accumulate(end)
    begins = np.append(True, start[1:] > reach[:-1])
    last = np.append(np.flatnonzero(begins)[1:], len(start)) - 1
    return start[begins], reach[last], step[: int(begins.sum())]


def _sum(
    times: Int64s, values: Values, start: Int64s, end: Int64s, step: pl.Series
) -> Iterator[tuple[int | None, float, int, float]]:
    """Yield the step, the integral, the time with samples, and the largest sample, by step."""
    if len(times) < 2:
        return
    start, end = (np.clip(edge, times[0], times[-1]) for edge in (start, end))
    is_valid = start < end
    start, end, step = start[is_valid], end[is_valid], step.filter(pl.Series(is_valid))
    if not len(start):
        return
    sums = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    integrals = _integrate(times, values, sums, end) - _integrate(times, values, sums, start)
    first = np.searchsorted(times, start, side="right") - 1
    stop = np.searchsorted(times, end, side="left")
    peaks = np.maximum.reduceat(np.append(values, -np.inf), np.column_stack([first, stop]).ravel())[::2]
    by_step = pl.DataFrame({"step": step, "integral": integrals, "time_ns": end - start, "peak": peaks})
    yield from (
        by_step.group_by("step", maintain_order=True)
        .agg(pl.col("integral", "time_ns").sum(), pl.col("peak").max())
        .iter_rows()
    )


def _integrate(times: Int64s, values: Values, sums: Values, edges: Int64s) -> Values:
    at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(times) - 2)
    integrals: Values = sums[at] + values[at] * (edges - times[at])
    return integrals
