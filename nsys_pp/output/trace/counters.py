"""Counters of a report: recorded counters, and the share of busy time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from nsys_pp.arrays.intervals import average_windows
from nsys_pp.arrays.types import Floats, Int64s
from nsys_pp.frames.columns import build_frame
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import METRIC_VALUES, SampledMetric, drop_unit, is_of_overview
from nsys_pp.output.trace.drawing import SAMPLES

_MAX_SAMPLES = 2000
_MOST_SAMPLES = 20_000  # of a recorded counter; a screen has a few thousand columns


class Counter(Struct, frozen=True, kw_only=True):
    """A counter, drawn as one row.

    Attributes:
        name: Name of the row.
        unit: Unit of the values, such as "%"; Perfetto's UI formats "ns", "count" and "bytes".
        samples: `SAMPLES`.
    """

    name: str
    unit: str
    samples: pl.DataFrame


def list_metrics(metrics: Iterable[SampledMetric]) -> list[Counter]:
    """Build the counters of sampled metrics, in order; many samples are thinned out (`thin`)."""
    return [
        Counter(name=metric.name, unit=metric.unit, samples=thin(metric.samples, most=_MOST_SAMPLES))
        for metric in metrics
    ]


def list_counters(counters: pl.DataFrame) -> list[Counter]:
    """Split `COUNTERS` of one GPU or process into counters by name and unit, in order of their first rows.

    Counters of very many samples are thinned out (`thin`).
    """
    if counters.is_empty():
        return []
    return [
        Counter(
            name=str(name),
            unit=str(unit),
            samples=thin(
                samples.sort("time_ns", maintain_order=True).pipe(conform, SAMPLES), most=_MOST_SAMPLES
            ),
        )
        for (name, unit), samples in counters.partition_by(
            "name", "unit", as_dict=True, maintain_order=True
        ).items()
    ]


def thin(samples: pl.DataFrame, *, most: int) -> pl.DataFrame:
    """Thin out the samples of a counter without losing extremes.

    The time from the first to the last sample is cut into equal windows; the first, the last, the smallest
    and the largest sample of each are kept. So every window has the values at its borders, and its extremes
    at their times.

    Args:
        samples: `SAMPLES`.
        most: Number of samples that are all kept; more are thinned out to about as many, at most.

    Returns:
        `SAMPLES`.
    """
    if len(samples) <= most:
        return samples
    first, last = int(samples["time_ns"][0]), int(samples["time_ns"][-1])
    width = (last - first) // (most // 4) + 1
    times, values = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    starts = np.searchsorted(
        times, np.arange(first, last + 1, width)
    )  # first rows of windows; some are empty
    starts = starts[np.append(starts[1:] > starts[:-1], True)]
    counts = np.diff(np.append(starts, len(times)))
    is_kept = np.zeros(len(times), dtype=bool)
    is_kept[starts] = True
    is_kept[starts + counts - 1] = True
    for extremes in (np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)):
        found = np.flatnonzero(values == np.repeat(extremes, counts))
        window = np.searchsorted(starts, found, side="right")
        is_kept[found[np.diff(window, prepend=-1) > 0]] = True
    return samples[np.flatnonzero(is_kept)]


def busy_percent(start_ns: pl.Series, end_ns: pl.Series) -> pl.DataFrame:
    """Sample the share of time covered by at least one interval.

    The time from the first start to the last end is cut into windows of equal length: 1, 2 or 5 times a power
    of ten nanoseconds, so that there are about 2,000 at most. A sample has the start of its window as time,
    and the covered share of the window as value.

    Args:
        start_ns: Starts of the intervals, in any order.
        end_ns: Ends of the intervals.

    Returns:
        `SAMPLES` in percent: one sample per change of the value, and a 0 at the end. Empty if there are no
        intervals, or only empty ones.
    """
    start, end = start_ns.to_numpy(), end_ns.to_numpy()
    if not len(start) or int(end.max()) <= int(start.min()):
        return pl.DataFrame(schema=SAMPLES)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    begins = np.ones(len(start), dtype=bool)
    begins[1:] = start[1:] > reach[:-1]
    first, last = start[begins], reach[np.append(np.flatnonzero(begins)[1:], len(start)) - 1]

    window = round_up(-(-(int(last[-1]) - int(first[0])) // _MAX_SAMPLES))
    edges = np.arange(int(first[0]) // window * window, int(last[-1]) + window, window)
    covered = np.concatenate([[0], np.cumsum(last - first)])
    at = np.searchsorted(first, edges, side="right")
    total = covered[at] - np.maximum(last[np.maximum(at - 1, 0)] - edges, 0) * (at > 0)
    percent = np.append(np.round(100 * np.diff(total) / window, 1), 0.0)
    changes = np.ones(len(edges), dtype=bool)
    changes[1:] = percent[1:] != percent[:-1]
    return build_frame([pl.Series("time_ns", edges[changes]), pl.Series("value", percent[changes])])


def round_up(length_ns: int) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= length_ns:
                return factor * power
        power *= 10


MOST_WINDOWS = 2000


def summarise_metrics(metrics: Iterable[SampledMetric]) -> tuple[SampledMetric, ...]:
    """Summarise the metrics of GPUs that show utilisation: means of about 2,000 windows at most.

    All others are left out.

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
    """Average the samples of a metric over windows of equal length.

    1, 2 or 5 times a power of ten nanoseconds.

    Means are weighted by time: a value is valid until the next sample, and the last one for no time. Windows
    begin at multiples of their length, but the first at the first sample.

    Args:
        samples: `METRIC_VALUES`, at least one row.

    Returns:
        `METRIC_VALUES`: the means, to a tenth, at the starts of their windows, one row per change; and the
            last sample.
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
