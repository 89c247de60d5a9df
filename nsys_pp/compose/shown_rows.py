"""Frames of a report with the data that is drawn on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import polars as pl
from msgspec.structs import replace

from nsys_pp.arrays.nesting import find_parents
from nsys_pp.frames.report import Report
from nsys_pp.units import format_count
from nsys_pp.write.trace.drawing import MORE_FLOWS, sequence_id
from nsys_pp.write.trace.overview import summarise_metrics

MOST_ARROWS = 8  # that begin at one call
_FLOW_BIT = 1 << 31  # of flow ids of calls on request; others of a report are smaller


def add_shown(
    report: Report,
    detail: str,
    show: tuple[str, ...],
    within: Callable[[pl.DataFrame, str, str], pl.DataFrame],
) -> dict[str, Any]:
    """Return the frames of a report that change with data on request; metrics are summarised where they are not requested.

    Args:
        report: The report.
        detail: Level of detail.
        show: Kinds of data that were read on request.
        within: Function that keeps the rows of a frame in the window to draw, by columns of starts and ends.
    """
    sampled = tuple(
        replace(metric, samples=within(metric.samples, "time_ns", "time_ns"))
        for metric in report.sampled_metrics
    )
    of_network = tuple(metric for metric in sampled if metric.ends_ns is not None)
    if "network" not in show:  # parts have sums of them
        sampled = tuple(metric for metric in sampled if metric.ends_ns is None)
        of_network = ()
    if "metrics" not in show:
        overview = () if detail == "jobs" else summarise_metrics(sampled)
        sampled = (*overview, *of_network)
    if not show:
        return {"activities": report.activities.clear(), "sampled_metrics": sampled}
    counters = [report.counters]
    if "memory" in show:
        from nsys_pp.aggregates.memory import count_memory_in_use  # a trace rarely needs it

        counters.append(count_memory_in_use(report.memory_events))
    return {
        "activities": _join_links(_nest(report.activities), report),
        "counters": pl.concat(counters),
        "sampled_metrics": sampled,
        "processes": _join_keys(report.processes, report.active_processes, "process_key"),
        "threads": _join_keys(report.threads, report.active_threads, "thread_key"),
    }


def _nest(activities: pl.DataFrame) -> pl.DataFrame:
    """Add `activity_id`, and `parent_id` of the innermost activity around each in its row."""
    rows = activities.with_row_index("activity_id").with_columns(pl.col("activity_id").cast(pl.Int64))
    if rows.is_empty():
        return rows.with_columns(parent_id=pl.lit(None, dtype=pl.Int64))
    owner = rows.select(
        pl.struct("row", "process_key", "thread_key").rank("dense").cast(pl.Int64)
    ).to_series()
    ends = rows.select(pl.coalesce("end_ns", "start_ns")).to_series()
    parent, _ = find_parents(owner.to_numpy(), rows["start_ns"].to_numpy(), ends.to_numpy())
    parents = pl.Series("parent_id", parent, dtype=pl.Int64)
    return rows.with_columns(parents.set(parents < 0, None))


def _join_links(activities: pl.DataFrame, report: Report) -> pl.DataFrame:
    """Add the flow ids of arrows from calls that record a CUDA event to calls that wait for it.

    Returns:
        The activities with `flow_id`, and further columns of them where several arrows begin at one call.
    """
    no_flow = activities.with_columns(flow_id=pl.lit(None, dtype=pl.UInt64))
    is_wait = pl.col("event_id").is_not_null() & ~pl.col("is_origin").fill_null(value=False)
    wait_count = activities.select(is_wait.sum()).item()
    if not wait_count:
        return no_flow
    origins = activities.filter("is_origin").select("link", from_ns="start_ns", origin="activity_id")
    arrows = (
        activities.filter(is_wait)
        .join(origins, on="link", how="inner", maintain_order="left")
        .filter(pl.col("from_ns") < pl.col("start_ns"))  # an arrow has a direction
        .sort("start_ns", maintain_order=True)
        .with_columns(number=pl.int_range(pl.len()).over("link"))
    )
    _warn_of_waits(
        report, wait_count, wait_count - len(arrows), len(arrows.filter(pl.col("number") >= MOST_ARROWS))
    )
    arrows = arrows.filter(pl.col("number") < MOST_ARROWS).with_row_index("arrow")
    high = pl.lit((sequence_id(report.fingerprint) << 32) | _FLOW_BIT, pl.UInt64)
    arrows = arrows.with_columns(flow_id=pl.col("arrow").cast(pl.UInt64) + high)
    ends = arrows.select("activity_id", "flow_id")
    drawn = activities.join(ends, on="activity_id", how="left", maintain_order="left")
    for number, of_number in sorted(arrows.partition_by("number", as_dict=True).items()):
        begins = of_number.select("flow_id", activity_id="origin")
        joined = drawn.join(begins, on="activity_id", how="left", maintain_order="left", suffix="_begin")
        if number == (0,):
            drawn = joined.with_columns(flow_id=pl.coalesce("flow_id", "flow_id_begin")).drop("flow_id_begin")
        else:
            drawn = joined.rename({"flow_id_begin": f"{MORE_FLOWS}{number[0] + 1}"})
    return drawn


def _warn_of_waits(report: Report, count: int, unknown: int, beyond: int) -> None:
    """Warn of waits for events without an arrow."""
    reasons = [f"{unknown:,} without a known record of the event"] * bool(unknown)
    reasons += [f"{beyond:,} of records that have {MOST_ARROWS} arrows"] * bool(beyond)
    if reasons:
        warnings.warn(
            f"`{report.path}`: no arrow to {unknown + beyond:,} of {format_count(count, 'wait')} for CUDA events:"
            f" {', '.join(reasons)}",
            stacklevel=5,
        )


def _join_keys(frame: pl.DataFrame, more: pl.DataFrame, key: str) -> pl.DataFrame:
    return pl.concat([frame, more]).unique(key, keep="first", maintain_order=True).sort(key)
