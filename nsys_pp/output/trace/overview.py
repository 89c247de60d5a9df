"""Overview of the utilisation of each GPU, from its sampled metrics, for traces without `--show metrics`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.sample_windows import average_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.report import METRIC_VALUES, SampledMetric, drop_unit, is_of_overview
from nsys_pp.output.trace.counters import round_up

MOST_WINDOWS = 2000


def summarise_metrics(metrics: Iterable[SampledMetric]) -> tuple[SampledMetric, ...]:
    """Summarise the metrics of GPUs that show utilisation: means of about 2,000 windows at most; all others are left out.

    Rows are named like "SMs Active (mean)".
    """
    return tuple(
        replace(
            metric,
            name=metric.name.replace(metric.metric, f"{drop_unit(metric.metric)} (mean)"),
            unit="%",
            samples=average(metric.samples),
        )
        for metric in metrics
        if metric.gpu is not None and is_of_overview(metric.metric) and len(metric.samples)
    )


def average(samples: pl.DataFrame) -> pl.DataFrame:
    """Average the samples of a metric over windows of equal length: 1, 2 or 5 times a power of ten nanoseconds.

    Means are weighted by time: a value is valid until the next sample, and the last one for no time. Windows begin at
    multiples of their length, but the first at the first sample.

    Args:
        samples: `METRIC_VALUES`, at least one row.

    Returns:
        `METRIC_VALUES`: the means, to a tenth, at the starts of their windows, one row per change; and the last sample.
        With fewer samples than windows: the samples, one row per change.
    """
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    if len(times) > MOST_WINDOWS and times[-1] > times[0]:
        times, values = _average(times, values)
    changes = np.ones(len(times), dtype=bool)
    changes[1:] = values[1:] != values[:-1]
    return pl.DataFrame({"time_ns": times[changes], "value": values[changes]}, schema=METRIC_VALUES)


def _average(times: Int64s, values: Floats) -> tuple[Int64s, Floats]:
    first, last = int(times[0]), int(times[-1])
    window = round_up(-(-(last - first) // MOST_WINDOWS))
    edges = np.append(np.arange(first // window * window, last, window), last)
    edges[0] = first
    means = np.round(average_windows(times, values, edges), 1)
    return edges, np.append(means, np.round(values[-1], 1))
