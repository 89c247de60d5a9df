"""Allocations and releases of memory, and its peak use.

A release belongs to the previous allocation at its address: it has the same device and kind, and ends it. The release of
memory that was allocated before the capture counts as a release, but does not lower the use. An address
that is allocated again was released at the latest then, even if no release was recorded.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.aggregates.step_times import step_on_host
from nsys_pp.arrays.innermost import find_innermost
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.aggregates import JOB_MEMORY_PEAKS, MEMORY_AGGREGATES, MEMORY_PEAKS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.report import COUNTERS

_SERIES = ["process_key", "device_id", "kind"]


def sum_memory(
    memory_events: pl.DataFrame,
    *,
    ranges: pl.DataFrame,
    jobs: pl.DataFrame,
    api_calls: pl.DataFrame,
    steps: pl.DataFrame,
) -> pl.DataFrame:
    """Count allocations and releases by kind of memory and by the surrounding job or range.

    The surrounding job, or else range, is the innermost one open on the thread of the call at that time. It is
    null if the call was not recorded.

    Args:
        memory_events: `MEMORY_EVENTS`.
        ranges: `RANGES`.
        jobs: `JOBS`.
        api_calls: `API_CALLS`.
        steps: `STEPS`.

    Returns:
        `MEMORY_AGGREGATES`, in order of their first events. A release has its recorded bytes, or else the bytes of its
        allocation. Empty in, empty out.
    """
    if memory_events.is_empty():
        return MEMORY_AGGREGATES.to_frame()
    events = _match_releases(memory_events)
    threads = _find_threads(events, api_calls)
    jobs = jobs.select("thread_key", "name", "kind", start_ns="host_start_ns", end_ns="host_end_ns")
    job = _rows_around(threads, events["time_ns"], jobs)
    opened = _rows_around(threads, events["time_ns"], ranges)
    is_release = pl.col("is_release")
    return (
        events.with_columns(
            step=step_on_host(events, steps, time="time_ns"),
            name=jobs["name"].gather(job).zip_with(job.is_not_null(), ranges["name"].gather(opened)),
            job=jobs["kind"].gather(job),
        )
        .group_by(*_SERIES, "step", "name", "job", maintain_order=True)
        .agg(
            allocation_count=(~is_release).sum(),
            free_count=is_release.sum(),
            allocated_bytes=pl.col("size_bytes").filter(~is_release).sum(),
            freed_bytes=pl.col("size_bytes").filter(is_release).sum(),
        )
        .pipe(conform, MEMORY_AGGREGATES)
    )


def find_peaks(memory_events: pl.DataFrame, *, windows: pl.DataFrame) -> pl.DataFrame:
    """Find the peak of allocated memory in each step.

        allocated       3  8  5 | 5     | 9  0
        step                  1 |     2 |    3      peaks 8, 5, 9

    Args:
        memory_events: `MEMORY_EVENTS`.
        windows: `HOST_WINDOWS`.

    Returns:
        `MEMORY_PEAKS`: one row per device, kind of memory and step of the process (null: outside all steps), sorted by
        these. Empty in, empty out.
    """
    if memory_events.is_empty():
        return MEMORY_PEAKS.to_frame()
    used = _add_up(_match_releases(memory_events))
    series = used.select("series", *_SERIES).unique("series", maintain_order=True)
    during = used.join_asof(
        windows.select("process_key", "step", "end_ns", time_ns="start_ns").sort("time_ns"),
        on="time_ns",
        by="process_key",
        check_sortedness=False,
    ).with_columns(step=pl.when(pl.col("time_ns") < pl.col("end_ns")).then("step"))
    before = (
        series.join(windows.select("process_key", "step", time_ns="start_ns"), on="process_key")
        .sort("time_ns")
        .join_asof(
            used.select("series", "time_ns", "used_bytes"),
            on="time_ns",
            by="series",
            check_sortedness=False,
        )
        .with_columns(pl.col("used_bytes").fill_null(0))
    )
    columns = ["series", *_SERIES, "step", "time_ns", "used_bytes"]
    return (
        pl.concat([before.select(columns), during.select(columns)])
        .sort("series", "time_ns")
        .group_by("series", *_SERIES, "step")
        .agg(peak_bytes=pl.col("used_bytes").max())
        .sort(*_SERIES, "step")
        .pipe(conform, MEMORY_PEAKS)
    )


def find_job_peaks(memory_events: pl.DataFrame, *, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the peak of allocated memory while the host was in a job, by kind of job.

        allocated       3  8  5 | 5     | 9  0
        jobs            [forward    ) [ backward     )     peaks 8, 9

    Args:
        memory_events: `MEMORY_EVENTS`.
        jobs: `JOBS`.

    Returns:
        `JOB_MEMORY_PEAKS`: one row per device, kind of memory, step and kind of job, sorted by these. A job counts for its device, or
        without one for all devices of its process. Empty in, empty out.
    """
    if memory_events.is_empty() or jobs.is_empty():
        return JOB_MEMORY_PEAKS.to_frame()
    open_jobs = jobs.select(
        "process_key",
        "step",
        job="kind",
        job_device="device_id",
        start_ns="host_start_ns",
        end_ns="host_end_ns",
    )
    parts = [JOB_MEMORY_PEAKS.to_frame()]
    used = _add_up(_match_releases(memory_events))
    for (process, device, kind), series in used.partition_by(
        _SERIES, as_dict=True, maintain_order=True
    ).items():
        is_own = pl.col("job_device").is_null() | pl.col("job_device").eq_missing(pl.lit(device, pl.Int32))
        own = open_jobs.filter(pl.col("process_key") == process, is_own)
        peaks = _find_range_peaks(
            series["time_ns"].to_numpy(),
            series["used_bytes"].to_numpy(),
            own["start_ns"].to_numpy(),
            own["end_ns"].to_numpy(),
        )
        parts.append(
            own.with_columns(
                pl.lit(device, pl.Int32).alias("device_id"),
                pl.lit(kind, pl.String).alias("kind"),
                pl.Series("peak_bytes", peaks),
            ).pipe(conform, JOB_MEMORY_PEAKS)
        )
    keys = [*_SERIES, "step", "job"]
    return (
        pl.concat(parts)
        .group_by(keys)
        .agg(pl.col("peak_bytes").max())
        .sort(keys)
        .pipe(conform, JOB_MEMORY_PEAKS)
    )


def _find_range_peaks(time: Int64s, used: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Find the largest value in each interval, of values that are valid from their times on; 0 before the first."""
    values = np.concatenate([[0], used, [0]])  # the last item ends the last range
    first = np.searchsorted(time, start, side="right")
    stop = np.maximum(np.searchsorted(time, end, side="left") + 1, first + 1)
    bounds = np.stack([first, stop], axis=1).reshape(-1)
    return np.asarray(np.maximum.reduceat(values, bounds)[::2]) if len(start) else first


def count_memory_in_use(memory_events: pl.DataFrame) -> pl.DataFrame:
    """Build the counters of allocated memory of each device, one per kind of memory.

    Args:
        memory_events: `MEMORY_EVENTS`.

    Returns:
        `COUNTERS` in bytes: what was allocated since the start of the capture and is not released. Empty in, empty out.
    """
    used = _add_up(_match_releases(memory_events))
    return (
        used.select(
            "process_key",
            "device_id",
            name=pl.format("{} memory in use", pl.col("kind").fill_null("other")),
            unit=pl.lit("bytes"),
            time_ns="time_ns",
            value=pl.col("used_bytes").cast(pl.Float64),
        )
        .sort("name", "process_key", "device_id", "time_ns")
        .pipe(conform, COUNTERS)
    )


def _match_releases(memory_events: pl.DataFrame) -> pl.DataFrame:
    """Assign to releases the device, the kind and (if unknown) the bytes of their allocations.

    Returns:
        The events with `released_ns`: the time of the release of an allocation, null without one.
    """
    events = memory_events.sort("time_ns", maintain_order=True).with_row_index("order")
    # the events of an address are adjacent
    events = events.sort("process_key", "address", maintain_order=True)
    is_release, address = pl.col("is_release"), pl.struct("process_key", "address")
    has_address = pl.col("address") != 0
    is_followed = ~is_release & has_address & (address == address.shift(-1))
    is_known = is_release & has_address & (address == address.shift(1)) & ~is_release.shift(1)
    size = pl.when(pl.col("size_bytes") > 0).then("size_bytes")
    return events.with_columns(
        pl.when(is_known).then(pl.col("device_id").shift(1)).otherwise("device_id"),
        pl.when(is_known).then(pl.coalesce(pl.col("kind").shift(1), "kind")).otherwise("kind"),
        size_bytes=pl.coalesce(size, pl.when(is_known).then(size.shift(1))),
        released_ns=pl.when(is_followed).then(pl.col("time_ns").shift(-1)),
    ).sort("order")


def _add_up(events: pl.DataFrame) -> pl.DataFrame:
    """Add up the allocated memory: one row per change, with `used_bytes` after it; by time_ns.

    Events of the same nanosecond are added up first, so that their order cannot make a peak.
    """
    allocated = events.filter(~pl.col("is_release")).with_columns(pl.col("size_bytes").fill_null(0))
    released = allocated.drop_nulls("released_ns").with_columns(
        time_ns="released_ns", size_bytes=-pl.col("size_bytes")
    )
    return (
        pl.concat([allocated, released])
        .group_by(*_SERIES, "time_ns")
        .agg(change=pl.col("size_bytes").sum())
        .sort("time_ns")
        .with_columns(
            series=pl.struct(_SERIES).rank("dense"),
            used_bytes=pl.col("change").cum_sum().over(_SERIES),
        )
    )


def _find_threads(events: pl.DataFrame, api_calls: pl.DataFrame) -> pl.Series:
    """Return the thread of the call of each event; null if unknown."""
    keys = ["process_key", "correlation_id"]
    calls = api_calls.select(*keys, "thread_key").join(events.select(keys), on=keys, how="semi")
    calls = calls.unique(keys, keep="first", maintain_order=True)
    return events.select(keys).join(calls, on=keys, how="left", maintain_order="left")["thread_key"]


def _rows_around(threads: pl.Series, times: pl.Series, intervals: pl.DataFrame) -> pl.Series:
    """Find the row of the innermost interval around each moment on its thread; null without any."""
    is_known = threads.is_not_null()
    rows = pl.int_range(len(intervals), eager=True)
    whole = intervals.select("thread_key", "start_ns", "end_ns", row=rows).drop_nulls()
    innermost = find_innermost(
        threads.filter(is_known).to_numpy(),
        times.filter(is_known).to_numpy(),
        interval_owner=whole["thread_key"].to_numpy(),
        start=whole["start_ns"].to_numpy(),
        end=whole["end_ns"].to_numpy(),
    )
    row = pl.Series(innermost, dtype=pl.Int64)
    around = whole["row"].gather(row.set(row < 0, None))
    at = is_known.arg_true()
    return pl.Series("row", [None], dtype=pl.Int64).new_from_index(0, len(times)).scatter(at, around)
