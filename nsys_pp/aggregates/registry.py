"""All aggregates of a report, and how they are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
from msgspec import Struct

from nsys_pp.aggregates.items import (
    find_job_peaks,
    find_peaks,
    sum_calls,
    sum_collectives,
    sum_copy_sizes,
    sum_items,
    sum_memory,
    sum_ops,
)
from nsys_pp.aggregates.times import (
    Windows,
    find_communication,
    find_idle,
    measure_gpu,
    measure_host,
    sum_launches,
)
from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, SUMMARY_PROCESSES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid
from nsys_pp.frames.raw import Group
from nsys_pp.frames.report import Report

_PROCESS = ("report", "process_key")


def list_processes(
    roster: pl.DataFrame,
    lanes: pl.DataFrame,
    reports: Sequence[Mapping[str, pl.DataFrame]],
    *,
    join: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame,
) -> pl.DataFrame:
    """List the GPU processes in the order of lanes, then the processes that used no GPU.

    Args:
        roster: `ROSTER`.
        lanes: `LANES`.
        reports: `AGGREGATE_FRAMES` of each report.
        join: Replaces the report and process of rows by those in `lanes`, where they differ.

    Returns:
        `SUMMARY_PROCESSES`.
    """
    processes = join(
        pl.concat(
            frames[name].select("process_key").unique().with_columns(report=pl.lit(number, pl.UInt32))
            for number, frames in enumerate(reports)
            for name in ("host_times", "op_aggregates")
        )
    ).unique()
    machines = roster.group_by("report", maintain_order=True).agg(pl.col("machine").first())
    others = (
        processes.join(lanes.select(_PROCESS), on=_PROCESS, how="anti")
        .join(machines, on="report", how="left")
        .with_columns(pid=pid(pl.col("process_key")))
        .sort("report", "pid", "process_key")
        .with_columns(
            label=pl.format("{} pid {}", "machine", "pid"),
            device_id=pl.lit(None),
            gpu=pl.lit(None),
            rank=pl.lit(None),
            stage=pl.lit(None),
        )
    )
    is_again = pl.col("label").cum_count().over("label")
    others = others.with_columns(
        label=pl.when(is_again > 1).then(pl.format("{} ({})", "label", is_again)).otherwise("label")
    )
    columns = [pl.col(name).cast(of) for name, of in SUMMARY_PROCESSES.items() if name != "process"]
    return (
        pl.concat(frame.select(columns) for frame in (lanes, others))
        .with_row_index("process")
        .pipe(conform, SUMMARY_PROCESSES)
    )


def concatenate_frames(
    reports: Sequence[Mapping[str, pl.DataFrame]],
    processes: pl.DataFrame,
    numbers: pl.DataFrame,
    *,
    join: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame,
) -> dict[str, pl.DataFrame]:
    """Concatenate the aggregates of all reports, with processes and steps numbered across the run.

    Args:
        reports: `AGGREGATE_FRAMES` of each report.
        processes: `SUMMARY_PROCESSES`.
        numbers: lane, step of the report, and run_step; lanes have the same numbers as their rows of
            `SUMMARY_PROCESSES`.
        join: Replaces the report and the steps of rows by those in `processes` and `numbers`, where they
            differ.

    Returns:
        The frames with `process` instead of process_key and device_id, and with the steps of the run; a step
        without a run_step becomes null. Activity of a process on the CPU has the first row of the process.
    """
    at_device = processes.select("report", "process_key", "device_id", "process")
    at_process = processes.unique(_PROCESS, keep="first", maintain_order=True).select(*_PROCESS, "process")
    steps = numbers.select(pl.col("lane").alias("process"), "step", "run_step")
    placed = {}
    for name in AGGREGATE_FRAMES:
        frame = join(
            pl.concat(
                frames[name].with_columns(report=pl.lit(number, pl.UInt32))
                for number, frames in enumerate(reports)
            )
        )
        process = frame.join(at_process, on=_PROCESS, how="left", maintain_order="left")["process"]
        if "device_id" in frame.columns:
            on_device = frame.join(at_device, on=at_device.columns[:3], how="left", maintain_order="left")
            process = on_device["process"].fill_null(process)
        placed[name] = (
            frame.drop("report", "process_key", "device_id", strict=False)
            .insert_column(0, process)
            .join(steps, on=["process", "step"], how="left", maintain_order="left")
            .with_columns(step="run_step")
            .drop("run_step")
        )
    return placed


# Groups of tables that aggregates need of a report.
GROUPS: frozenset[Group] = frozenset({"ranges", "ops", "communication", "details", "host"})


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


# Functions of all aggregates, by the names of `AGGREGATE_FRAMES`.
AGGREGATES: Mapping[str, Callable[[AggregateSources], pl.DataFrame]] = {
    "op_aggregates": lambda of: sum_ops(of.report.gpu_ops, of.report.op_details, of.steps),
    "copy_sizes": lambda of: sum_copy_sizes(of.report.gpu_ops, of.report.op_details, of.steps),
    "call_aggregates": lambda of: sum_calls(of.report.api_calls, of.report.os_calls, of.steps),
    "item_aggregates": lambda of: sum_items(
        ranges=of.report.ranges,
        projections=of.projections,
        operators=of.operators,
        jobs=of.jobs,
        steps=of.steps,
        kinds=of.op_kinds,
        gpu_ops=of.report.gpu_ops,
        api_calls=of.report.api_calls,
        launches=of.launches,
    ),
    "collective_aggregates": lambda of: sum_collectives(
        of.report.gpu_ops, of.requests, of.report.nccl_calls, of.steps
    ),
    "gpu_times": lambda of: measure_gpu(
        of.report.gpu_ops,
        host_communication=find_communication(of.report.ranges, of.operators),
        windows=of.windows.device,
    ),
    "host_times": lambda of: measure_host(
        windows=of.windows.host,
        ranges=of.report.ranges,
        operators=of.operators,
        jobs=of.jobs,
        api_calls=of.report.api_calls,
        os_calls=of.report.os_calls,
        thread_runs=of.report.thread_runs,
    ),
    "idle_times": lambda of: find_idle(
        of.report.gpu_ops,
        api_calls=of.report.api_calls,
        launches=of.launches,
        windows=of.windows.device,
    ),
    "launch_aggregates": lambda of: sum_launches(
        of.report.gpu_ops,
        api_calls=of.report.api_calls,
        launches=of.launches,
        steps=of.steps,
    ),
    "memory_aggregates": lambda of: sum_memory(
        of.report.memory_events,
        ranges=of.report.ranges,
        jobs=of.jobs,
        api_calls=of.report.api_calls,
        steps=of.steps,
    ),
    "memory_peaks": lambda of: find_peaks(of.report.memory_events, windows=of.windows.host),
    "job_memory_peaks": lambda of: find_job_peaks(of.report.memory_events, jobs=of.jobs),
}
