"""Share of the compute between the jobs of a run that belongs to no job."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.columns import whole_numbers
from nsys_pp.arrays.segments import running_maximum
from nsys_pp.arrays.types import Int64s
from nsys_pp.frames.training import SCHEDULED_KINDS, Schedule

_MOST_UNEXPLAINED = 0.05  # casts, norms and sums of gradients between jobs are a few percent


def doubt_schedule(
    schedule: Schedule, jobs: pl.DataFrame, compute_segments: pl.DataFrame
) -> tuple[Schedule, list[str]]:
    """Add the share of unexplained compute to a schedule, which is uncertain if the share is large.

    Weight gradients without ranges, for example, turn the order of jobs of ZB-H1 into that of 1F1B.

    Args:
        schedule: A schedule.
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The schedule, and a note if the share is large.
    """
    share = measure_unexplained(jobs, compute_segments)
    schedule = replace(schedule, unexplained=share)
    if share is None or share <= _MOST_UNEXPLAINED:
        return schedule, []
    reason = f"{share:.0%} of the compute between jobs belongs to no job"
    if schedule.source == "recognised":
        schedule = replace(schedule, source="uncertain", reason=reason)
        reason += f", so the schedule {schedule.name} is uncertain"
    return schedule, [f"{reason}: name the ranges of further jobs with `--job`, or choose `--preset`"]


def measure_unexplained(jobs: pl.DataFrame, compute_segments: pl.DataFrame) -> float | None:
    """Measure the share of compute outside of all jobs, from the first job of each lane and step on.

    It counts until the optimizer, or else until the last job, since few rules name all of an optimizer.

    Args:
        jobs: `RUN_JOBS`.
        compute_segments: `LANE_COMPUTE_SEGMENTS`.

    Returns:
        The share, from 0 to 1; None without compute between jobs.
    """
    ran = jobs.select(
        "lane", "step", "kind", start_ns="compute_start_ns", end_ns="compute_end_ns"
    ).drop_nulls(["start_ns", "end_ns"])
    is_scheduled = pl.col("kind").is_in(SCHEDULED_KINDS)
    last_ns = pl.col("end_ns").filter(is_scheduled).max()
    updates = pl.col("start_ns").filter((pl.col("kind") == "optimizer") & (pl.col("start_ns") >= last_ns))
    spans = (
        ran.drop_nulls("step")
        .group_by("lane", "step")
        .agg(
            start_ns=pl.col("start_ns").filter(is_scheduled).min(), end_ns=pl.coalesce(updates.min(), last_ns)
        )
        .drop_nulls()
        .sort("lane", "start_ns")
    )
    if spans.is_empty() or compute_segments.is_empty():
        return None
    segments = _place_lanes(compute_segments, spans)
    start, end = _place_lanes(spans, spans)
    jobs_start, jobs_end = _place_lanes(ran, spans)
    covered = running_maximum(np.zeros(len(jobs_end), dtype=np.int64), jobs_end)
    jobs_start = np.maximum(
        jobs_start, np.append(jobs_start[:1], covered[:-1])
    )  # the rest of overlapping jobs
    in_jobs = (jobs_start, np.maximum(jobs_start, jobs_end))
    total = int((_sum_until(segments, end) - _sum_until(segments, start)).sum())
    explained = int((_sum_common(segments, in_jobs, end) - _sum_common(segments, in_jobs, start)).sum())
    return (total - explained) / total if total else None


def _place_lanes(frame: pl.DataFrame, spans: pl.DataFrame) -> tuple[Int64s, Int64s]:
    """Return starts and ends by lane and start on one line: lanes of `spans` follow each other."""
    least, most = int(spans["start_ns"].min()), int(spans["end_ns"].max())  # type: ignore[arg-type]
    inside = frame.filter(pl.col("end_ns") > least, pl.col("start_ns") < most).sort("lane", "start_ns")
    shift = whole_numbers(inside["lane"]) * (most - least + 1) - least
    start, end = (inside[name].to_numpy() for name in ("start_ns", "end_ns"))
    return start.clip(least, most) + shift, end.clip(least, most) + shift


def _sum_until(segments: tuple[Int64s, Int64s], times: Int64s) -> Int64s:
    """Sum the lengths of segments, in order and apart, up to each time."""
    start, end = segments
    before = np.append(0, np.cumsum(end - start))
    row = np.searchsorted(start, times, side="right") - 1
    part = np.minimum(times, np.append(end, 0)[row]) - np.append(start, 0)[row]
    sums: Int64s = np.where(row >= 0, before[row] + part, 0)
    return sums


def _sum_common(segments: tuple[Int64s, Int64s], jobs: tuple[Int64s, Int64s], times: Int64s) -> Int64s:
    """Sum the lengths that segments and jobs have in common, up to each time; both are in order and apart."""
    start, end = jobs
    before = np.append(0, np.cumsum(_sum_until(segments, end) - _sum_until(segments, start)))
    row = np.searchsorted(start, times, side="right") - 1
    until = np.minimum(times, np.append(end, 0)[row])
    part = _sum_until(segments, until) - _sum_until(segments, np.append(start, 0)[row])
    sums: Int64s = np.where(row >= 0, before[row] + part, 0)
    return sums
