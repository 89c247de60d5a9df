"""GPU metrics by kind of job, by step and by cause of bubbles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.causes import BUBBLE_CAUSES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import JOB_KINDS, Training

_COLUMNS = (
    Column("metric", pl.String, "name of the metric, as nsys has it", is_name=True, priority=9),
    Column("group", pl.String, "time that is measured: steps, compute, jobs or bubbles", priority=8),
    Column("item", pl.String, "kind of the jobs, or cause of the bubbles; null: all", priority=9),
    Column("mean", pl.Float64, "mean of the metric in that time, over all lanes", decimals=1, priority=9),
    Column("peak", pl.Float64, "largest sample of that time", decimals=1, priority=8),
    Column("time_ns", pl.Int64, "time with samples, summed over lanes", display_unit="ms", priority=5),
    Column("lane_count", pl.Int64, "lanes with samples in that time", heading="Lanes", priority=3),
)
_GROUPS = ("steps", "compute", "jobs", "bubbles")
_SCHEMA = {"group": pl.String, "item": pl.String, "lane": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}


def build_metric_table(training: Training, samples: pl.DataFrame) -> pl.DataFrame:
    """Build the rows of `METRIC_TABLE`, by metric, group and item.

    A value is valid until the next sample; that of the last sample of a lane is not used. The mean is weighted by time, so
    that bubbles shorter than the distance of samples count by their share of it.

    Args:
        training: The training.
        samples: `METRIC_SAMPLES`.
    """
    measured_times = _list_measured(training)
    rows = list(_measure(measured_times, samples))
    schema = {
        "metric": pl.String,
        "group": pl.String,
        "item": pl.String,
        "lane": pl.UInt32,
        "integral": pl.Float64,
        "time_ns": pl.Int64,
        "peak": pl.Float64,
    }
    measured = pl.DataFrame(rows, schema=schema, orient="row").filter(pl.col("time_ns") > 0)
    items = list(dict.fromkeys([*JOB_KINDS, *BUBBLE_CAUSES]))
    order = [
        pl.col("metric"),
        pl.col("group").replace_strict(list(_GROUPS), range(len(_GROUPS)), return_dtype=pl.Int64),
        pl.col("item").replace_strict(items, range(len(items)), default=-1, return_dtype=pl.Int64),
    ]
    return (
        measured.group_by("metric", "group", "item")
        .agg(
            mean=pl.col("integral").sum() / pl.col("time_ns").sum(),
            peak=pl.col("peak").max(),
            time_ns=pl.col("time_ns").sum(),
            lane_count=pl.col("lane").n_unique().cast(pl.Int64),
        )
        .sort(order)
        .pipe(conform, build_table_schema(_COLUMNS))
    )


def _list_measured(training: Training) -> pl.DataFrame:
    """List the intervals of lanes that are measured: group, item, lane, start_ns, end_ns."""
    none = pl.lit(None, pl.String)
    states = training.lane_states.with_columns(pl.col("cause").cast(pl.String))
    is_bubble = pl.col("cause").is_in(BUBBLE_CAUSES)
    parts = [
        training.steps.with_columns(group=pl.lit("steps"), item=none),
        states.filter(pl.col("cause") == "compute").with_columns(group=pl.lit("compute"), item=none),
        training.jobs.with_columns(group=pl.lit("jobs"), item=pl.col("kind").cast(pl.String)),
        states.filter(is_bubble).with_columns(group=pl.lit("bubbles"), item=pl.col("cause")),
    ]
    return pl.concat([part.select(*_SCHEMA).drop_nulls(["start_ns", "end_ns"]) for part in parts])


def _measure(measured_times: pl.DataFrame, samples: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """Measure each metric in each place of a lane: its integral, the time with samples, and the largest sample."""
    by_lane = measured_times.partition_by("lane", as_dict=True)
    for (lane, metric), rows in samples.group_by("lane", "name", maintain_order=True):
        if (lane,) not in by_lane:
            continue
        times, values = rows["time_ns"].to_numpy(), rows["value"].to_numpy()
        for (group, item), of_item in by_lane[lane,].group_by("group", "item"):
            spans = of_item.sort("start_ns").select("start_ns", "end_ns")
            start, end = (spans[name].to_numpy() for name in spans.columns)
            integral, time = _integrate(times, values, start, end)
            peak = _find_peak(times, values, start, end)
            yield metric, group, item, lane, integral, time, peak


def _integrate(times: Int64s, values: NDArray[np.float64], start: Int64s, end: Int64s) -> tuple[float, int]:
    """Integrate a metric over intervals, where it is known: from the first to the last sample."""
    if len(times) < 2:
        return 0.0, 0
    start, end = (np.clip(edge, times[0], times[-1]) for edge in (start, end))
    sums = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])

    def until(edges: Int64s) -> NDArray[np.float64]:
        at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(times) - 2)
        integrals: NDArray[np.float64] = sums[at] + values[at] * (edges - times[at])
        return integrals

    return float((until(end) - until(start)).sum()), int((end - start).sum())


def _find_peak(times: Int64s, values: NDArray[np.float64], start: Int64s, end: Int64s) -> float | None:
    """Find the largest sample that is valid within any of the intervals; None without one."""
    first = np.maximum(np.searchsorted(times, start, side="right") - 1, 0)
    stop = np.minimum(np.searchsorted(times, end, side="left"), len(times) - 1)
    is_known = first < stop
    if not is_known.any():
        return None
    counts = np.zeros(len(times) + 1, dtype=np.int64)  # samples inside any interval
    np.add.at(counts, first[is_known], 1)
    np.add.at(counts, stop[is_known], -1)
    return float(values[np.cumsum(counts[:-1]) > 0].max())


METRIC_TABLE = Table(
    name="metrics",
    title="GPU metrics by step, job and bubble",
    columns=_COLUMNS,
    caption=(
        "means are weighted by time; a value holds until the next sample. Jobs are from their first to their last operation, and may"
        " contain bubbles; jobs of several kinds at once all count"
    ),
    build=build_metric_table,
    empty="no GPU metrics",  # the caller knows the reason
)
