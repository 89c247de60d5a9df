"""Registry of the aggregates of a report.

To add an aggregate, define its schema in `nsys_pp.frames.aggregates`, compute it in a module of this package, and
add one line here. Parts store it, and the summary finds it in `Summary.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.calls import sum_calls
from nsys_pp.aggregates.collectives import sum_collectives
from nsys_pp.aggregates.gpu_times import measure_gpu
from nsys_pp.aggregates.host_times import find_communication, measure_host
from nsys_pp.aggregates.idle_times import find_idle
from nsys_pp.aggregates.items import sum_items
from nsys_pp.aggregates.launches import sum_launches
from nsys_pp.aggregates.memory import find_job_peaks, find_peaks, sum_memory
from nsys_pp.aggregates.ops import sum_copy_sizes, sum_ops
from nsys_pp.aggregates.windows import Windows
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report

GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "communication", "details", "host"})
"""Groups of tables that aggregates need of a report."""


class AggregateSources(Struct, frozen=True, kw_only=True):
    """Frames of one report, and frames derived from it, that aggregates are computed from.

    Attributes:
        report: Read with `GROUPS`.
        projections: `PROJECTIONS`.
        launches: `LAUNCHES`.
        requests: `REQUESTS`.
        operators: `NAMED_OPERATORS`.
        steps: `STEPS`.
        jobs: `JOBS`.
        windows: The time of the report, by step.
        op_kinds: Kinds of operation that projections and jobs count.
    """

    report: Report
    projections: pl.DataFrame
    launches: pl.DataFrame
    requests: pl.DataFrame
    operators: pl.DataFrame
    steps: pl.DataFrame
    jobs: pl.DataFrame
    windows: Windows
    op_kinds: tuple[str, ...]


def _sum_items(sources: AggregateSources) -> pl.DataFrame:
    return sum_items(
        ranges=sources.report.ranges,
        projections=sources.projections,
        operators=sources.operators,
        jobs=sources.jobs,
        steps=sources.steps,
        kinds=sources.op_kinds,
        gpu_ops=sources.report.gpu_ops,
        api_calls=sources.report.api_calls,
        launches=sources.launches,
    )


def _measure_gpu(sources: AggregateSources) -> pl.DataFrame:
    communication = find_communication(sources.report.ranges, sources.operators)
    return measure_gpu(
        sources.report.gpu_ops, host_communication=communication, windows=sources.windows.device
    )


def _measure_host(sources: AggregateSources) -> pl.DataFrame:
    return measure_host(
        windows=sources.windows.host,
        ranges=sources.report.ranges,
        operators=sources.operators,
        jobs=sources.jobs,
        api_calls=sources.report.api_calls,
        os_calls=sources.report.os_calls,
        thread_runs=sources.report.thread_runs,
    )


def _find_idle(sources: AggregateSources) -> pl.DataFrame:
    return find_idle(
        sources.report.gpu_ops,
        api_calls=sources.report.api_calls,
        launches=sources.launches,
        windows=sources.windows.device,
    )


def _sum_launches(sources: AggregateSources) -> pl.DataFrame:
    return sum_launches(
        sources.report.gpu_ops,
        api_calls=sources.report.api_calls,
        launches=sources.launches,
        steps=sources.steps,
    )


def _sum_memory(sources: AggregateSources) -> pl.DataFrame:
    return sum_memory(
        sources.report.memory_events,
        ranges=sources.report.ranges,
        jobs=sources.jobs,
        api_calls=sources.report.api_calls,
        steps=sources.steps,
    )


AGGREGATES: Mapping[str, Callable[[AggregateSources], pl.DataFrame]] = {
    "op_aggregates": lambda of: sum_ops(of.report.gpu_ops, of.report.op_details, of.steps),
    "copy_sizes": lambda of: sum_copy_sizes(of.report.gpu_ops, of.report.op_details, of.steps),
    "call_aggregates": lambda of: sum_calls(of.report.api_calls, of.report.os_calls, of.steps),
    "item_aggregates": _sum_items,
    "collective_aggregates": lambda of: sum_collectives(
        of.report.gpu_ops, of.requests, of.report.nccl_calls, of.steps
    ),
    "gpu_times": _measure_gpu,
    "host_times": _measure_host,
    "idle_times": _find_idle,
    "launch_aggregates": _sum_launches,
    "memory_aggregates": _sum_memory,
    "memory_peaks": lambda of: find_peaks(of.report.memory_events, windows=of.windows.host),
    "job_memory_peaks": lambda of: find_job_peaks(of.report.memory_events, jobs=of.jobs),
}
"""Functions of all aggregates, by the names of `AGGREGATE_FRAMES`."""
