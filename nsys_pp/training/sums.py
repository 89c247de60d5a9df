"""Sums of sampled metrics over intervals of a lane.

By step, kind of job, family of kernels and cause of bubbles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from nsys_pp.arrays.intervals import find_peaks, integrate, unite
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import BUBBLE_CAUSES, MEASURED_TIMES, METRIC_SUMS, Training


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
        states.filter(is_bubble).with_columns(group=pl.lit("bubbles"), item=pl.col("cause"), step=no_step),
    ]
    return pl.concat(
        [
            conform(part.drop_nulls(["start_ns", "end_ns"]).select(*MEASURED_TIMES), MEASURED_TIMES)
            for part in parts
        ]
    )


def measure_families(families: pl.DataFrame, steps: pl.DataFrame, *, lane: int) -> pl.DataFrame:
    """List the kernels of each family in each step (`MEASURED_TIMES`, group "families").

    Kernels are in the step in which they start; time in which several kernels of a family run is listed once.

    Args:
        families: `FAMILY_TIMES` of the lane.
        steps: `step`, `start_ns` and `end_ns` of its steps, one after the other.
        lane: The lane.
    """
    if steps.is_empty():
        return MEASURED_TIMES.to_frame()
    steps = steps.sort("start_ns")
    starts = families["start_ns"].to_numpy()
    at = np.searchsorted(steps["start_ns"].to_numpy(), starts, side="right") - 1
    is_inside = (at >= 0) & (starts < steps["end_ns"].to_numpy()[np.maximum(at, 0)])
    inside = families.with_columns(pl.Series("at", at)).filter(pl.Series(is_inside))
    rank = pl.struct("family", "at").rank("dense").cast(pl.Int64)
    segment, start, end = (series.to_numpy() for series in inside.select(rank - 1, "start_ns", "end_ns"))
    united = unite(segment, start, end)
    own = inside[np.unique(segment, return_index=True)[1]][united.owner]
    return (
        pl.DataFrame({"start_ns": united.start, "end_ns": united.end})
        .with_columns(
            lane=pl.lit(lane, pl.UInt32),
            group=pl.lit("families"),
            item=own["family"],
            step=steps["step"][own["at"]],
        )
        .pipe(conform, MEASURED_TIMES)
    )


def sum_metrics(measured: pl.DataFrame, metrics: Mapping[str, pl.DataFrame], *, lane: int) -> pl.DataFrame:
    """Sum metrics over the intervals of a lane.

    A value is valid until the next sample; that of the last one is not used. Time of several intervals of an
    item counts once.

    Args:
        measured: `MEASURED_TIMES` of the lane, on the clock of the samples.
        metrics: `METRIC_VALUES` by name of the metric, or means of windows with the column `peak`.
        lane: The lane.

    Returns:
        `METRIC_SUMS`, in any order; without items that no sample is valid in.
    """
    items = [
        (key, *_join(of_item["start_ns"].to_numpy(), of_item["end_ns"].to_numpy(), of_item["step"]))
        for key, of_item in measured.sort("start_ns").group_by("group", "item", maintain_order=True)
    ]
    return pl.DataFrame(
        [
            (lane, metric, group, item, *sums)
            for metric, samples in metrics.items()
            for (group, item), start, end, step in items
            for sums in _sum(samples, start, end, step)
        ],
        schema=METRIC_SUMS,
        orient="row",
    )


def _join(start: Int64s, end: Int64s, step: pl.Series) -> tuple[Int64s, Int64s, pl.Series]:
    """Join intervals that overlap or touch, in order of their starts.

    Intervals with steps are apart already.
    """
    if step.null_count() < len(step) or not len(start):
        return start, end, step
    reach = np.maximum.accumulate(end)
    begins = np.append(True, start[1:] > reach[:-1])
    last = np.append(np.flatnonzero(begins)[1:], len(start)) - 1
    return start[begins], reach[last], step[: int(begins.sum())]


def _sum(
    samples: pl.DataFrame, start: Int64s, end: Int64s, step: pl.Series
) -> Iterator[tuple[int | None, float, int, float]]:
    # by step: its number, the integral, the time with samples, the largest sample
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    if len(times) < 2:
        return
    start, end = (np.clip(edge, times[0], times[-1]) for edge in (start, end))
    is_valid = start < end
    start, end, step = start[is_valid], end[is_valid], step.filter(pl.Series(is_valid))
    integrals = integrate(times, values, np.column_stack([start, end]).ravel())
    peaks = samples["peak" if "peak" in samples.columns else "value"].to_numpy()
    by_step = pl.DataFrame(
        {
            "step": step,
            "integral": integrals[1::2] - integrals[::2],
            "time_ns": end - start,
            "peak": find_peaks(times, peaks, start, end),
        }
    )
    yield from (
        by_step.group_by("step", maintain_order=True)
        .agg(pl.col("integral", "time_ns").sum(), pl.col("peak").max())
        .iter_rows()
    )


MACHINE_STEPS = build_schema(
    {  # one row per step of a machine, in order, without overlaps
        "step": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
    },
    name="MACHINE_STEPS",
)

NETWORK_RATES = build_schema(
    {  # one row per sample, or for several successive ones
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "bytes_per_ns": pl.Float64,
        "peak_bytes_per_ns": pl.Float64,  # the same for a single sample
    },
    name="NETWORK_RATES",
)

STEP_BYTES = build_schema(
    {  # one row per step with samples
        "step": pl.Int64,
        "bytes": pl.Float64,
        "peak_bytes_per_ns": pl.Float64,
    },
    name="STEP_BYTES",
)


def list_machine_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """List the steps of the lanes of a machine (`MACHINE_STEPS`).

    Each ends where the next one begins on any lane.

    Args:
        steps: `RUN_STEPS` of its lanes.
    """
    spans = steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    end = pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1))
    return spans.with_columns(end_ns=pl.coalesce(end, "end_ns")).pipe(conform, MACHINE_STEPS)


def sum_bytes(rates: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Sum the bytes of a metric by step.

    A sample that reaches into several steps counts by its share of time.

    Args:
        rates: `NETWORK_RATES`, in any order; samples of several ports at the same time add up.
        steps: `MACHINE_STEPS`, on the clock of the samples.

    Returns:
        `STEP_BYTES`.
    """
    rates = rates.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    if rates.is_empty():
        return STEP_BYTES.to_frame()
    first, last = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    start, end, rate, peak = (rates[name].to_numpy() for name in NETWORK_RATES)
    total = _sum_until(start, end, rate, last) - _sum_until(start, end, rate, first)
    known = _sum_until(start, end, np.ones(len(rate)), last) - _sum_until(
        start, end, np.ones(len(rate)), first
    )
    peaks = [
        float(peak[(start < until) & (end > since)].max(initial=0.0))
        for since, until in zip(first, last, strict=True)
    ]
    return (
        steps.select("step")
        .with_columns(pl.Series("bytes", total), pl.Series("peak_bytes_per_ns", peaks))
        .filter(pl.Series(known > 0))
        .pipe(conform, STEP_BYTES)
    )


def _sum_until(start: Int64s, end: Int64s, rate: Floats, edges: Int64s) -> Floats:
    """Integrate rates up to each edge; intervals may overlap."""
    order = np.argsort(end, kind="stable")
    by_end = np.concatenate([[0.0], np.cumsum((rate * (end - start))[order])])
    ended = np.searchsorted(end[order], edges, side="right")
    # of the others that began: rate times edge, less rate times start
    rate_begun, rate_ended = (np.concatenate([[0.0], np.cumsum(of)]) for of in (rate, rate[order]))
    origin = int(start[0])
    offset = rate * (start - origin)
    begun_at, ended_at = (np.concatenate([[0.0], np.cumsum(of)]) for of in (offset, offset[order]))
    begun = np.searchsorted(start, edges, side="left")
    running = (rate_begun[begun] - rate_ended[ended]) * (edges - origin)
    return np.asarray(by_end[ended] + running - (begun_at[begun] - ended_at[ended]))
