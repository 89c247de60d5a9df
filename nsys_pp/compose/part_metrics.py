"""GPU metrics in parts: frames of bounded size, and their sums over the training of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys_pp.arrays.sample_windows import average_windows, find_peaks
from nsys_pp.compose.metric_lanes import LaneTimes, ReportSums, list_family_times
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.part import Part
from nsys_pp.frames.part_metrics import METRIC_FAMILIES, METRIC_WINDOWS
from nsys_pp.frames.report import Report
from nsys_pp.frames.requested import METRIC_SUMS
from nsys_pp.frames.sampled_metrics import SampledMetric, parse_unit
from nsys_pp.training.run.metric_sums import measure_families, sum_metrics

MOST_WINDOWS = 200_000  # of all metrics of a part; they take some MB
_FEWEST_WINDOWS = 100  # of a metric
_OWNER = ("process_key", "device_id", "gpu", "bus", "metric")
_DEVICE = ("process_key", "device_id")
_VALUES = build_schema(
    {"time_ns": pl.Int64, "value": pl.Float64, "peak": pl.Float64}, name="WINDOWS_OF_A_METRIC"
)


def summarise_for_part(report: Report, steps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Build the frames of a part with the GPU metrics of a report (`METRIC_FRAMES`); none without metrics.

    Args:
        report: Read with group "metric_sums".
        steps: Its `STEPS`.
    """
    metrics = [metric for metric in report.sampled_metrics if metric.gpu is not None and len(metric.samples)]
    if not metrics:
        return {}
    most = max(MOST_WINDOWS // len(metrics), _FEWEST_WINDOWS)
    windows = [
        _shorten(metric.samples, most).with_columns(
            pl.lit(getattr(metric, name), METRIC_WINDOWS[name]).alias(name) for name in _OWNER
        )
        for metric in metrics
    ]
    families = [_sum_families(report, metrics, steps, *key) for key in report.devices.select(_DEVICE).rows()]
    return {
        "metric_windows": pl.concat([conform(part, METRIC_WINDOWS) for part in windows]),
        "metric_families": pl.concat([METRIC_FAMILIES.to_frame(), *families]),
    }


def _shorten(samples: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the samples, or the means and peaks of as many windows as are allowed, and the last sample."""
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    if len(times) <= most or times[0] == times[-1]:
        return samples.with_columns(peak="value").pipe(conform, _VALUES)
    first, last = int(times[0]), int(times[-1])
    width = -(-(last - first) // (most - 1))
    edges = np.append(np.arange(first, last, width), last)
    means = average_windows(times, values, edges)
    peaks = find_peaks(times, values, edges[:-1], edges[1:])
    columns = {"time_ns": edges, "value": np.append(means, values[-1]), "peak": np.append(peaks, values[-1])}
    return pl.DataFrame(columns, schema=_VALUES)


def _sum_families(
    report: Report,
    metrics: Sequence[SampledMetric],
    steps: pl.DataFrame,
    process_key: int,
    device_id: int,
) -> pl.DataFrame:
    """Sum the metrics of a device over its kernels by family and step (`METRIC_FAMILIES`)."""
    own = {
        metric.metric: metric.samples
        for metric in metrics
        if (metric.process_key, metric.device_id) == (process_key, device_id)
    }
    if not own:
        return METRIC_FAMILIES.to_frame()
    of_device = (
        steps.filter(process_key=process_key, device_id=device_id)
        .select("start_ns", "end_ns")
        .with_columns(step=pl.col("start_ns"))
    )
    families = list_family_times(report, process_key, device_id)
    sums = sum_metrics(measure_families(families, of_device, lane=0), own, lane=0)
    return (
        sums.rename({"item": "family", "step": "step_start_ns"})
        .with_columns(
            process_key=pl.lit(process_key, pl.Int64),
            device_id=pl.lit(device_id, pl.Int32),
        )
        .pipe(conform, METRIC_FAMILIES)
    )


def sum_part(part: Part, lanes: Sequence[LaneTimes]) -> ReportSums:
    """Sum the metrics of a part over the intervals of lanes.

    Sums by family are of the kernels of the part; lanes of other reports have none.

    Args:
        part: With its frames of metrics, or without.
        lanes: Lanes, with intervals on the clock of the part's report.
    """
    if "metric_windows" not in part.frames:
        return ReportSums(METRIC_SUMS.to_frame(), [])
    windows = part.frames["metric_windows"]
    metrics = [
        SampledMetric(
            **dict(zip(_OWNER, key, strict=True)),
            name=str(key[-1]),
            unit=parse_unit(str(key[-1])),
            samples=conform(of_metric, _VALUES),
        )
        for key, of_metric in windows.partition_by(_OWNER, as_dict=True, maintain_order=True).items()
    ]
    families = part.frames["metric_families"]
    sums = [METRIC_SUMS.to_frame()]
    for lane in lanes:
        own = {metric.metric: metric.samples for metric in metrics if lane.has(metric)}
        if own:
            sums.append(sum_metrics(lane.measured, own, lane=lane.lane))
            sums.append(_number_families(families, lane))
    gpus = {str(metric.gpu): metric for metric in metrics}
    return ReportSums(pl.concat(sums), list(gpus.values()))


def _number_families(families: pl.DataFrame, lane: LaneTimes) -> pl.DataFrame:
    """Return the sums of a lane by family in the steps of the run (`METRIC_SUMS`)."""
    steps = lane.measured.filter(group="steps").sort("start_ns")
    return (
        families.filter(process_key=lane.process_key, device_id=lane.device_id)
        .sort("step_start_ns")
        .join_asof(steps.select("step", "start_ns", "end_ns"), left_on="step_start_ns", right_on="start_ns")
        .filter(pl.col("step_start_ns") < pl.col("end_ns"))
        .with_columns(lane=pl.lit(lane.lane, pl.UInt32), group=pl.lit("families"), item="family")
        .pipe(conform, METRIC_SUMS)
    )
