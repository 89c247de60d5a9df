"""Processes of a run: the GPU processes of all reports, and the processes without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from nsys_pp.frames.aggregates import AGGREGATE_FRAMES, SUMMARY_PROCESSES
from nsys_pp.frames.conform import conform
from nsys_pp.frames.ids import pid

_PROCESS = ("report", "process_key")


def list_processes(
    roster: pl.DataFrame,
    lanes: pl.DataFrame,
    reports: Sequence[Mapping[str, pl.DataFrame]],
    *,
    first: Sequence[int] | None = None,
) -> pl.DataFrame:
    """List the GPU processes in the order of lanes, then the processes that used no GPU.

    Args:
        roster: `ROSTER`.
        lanes: `LANES`.
        reports: `AGGREGATE_FRAMES` of each report.
        first: Report whose processes each report continues, as a later capture of them; None: each has its own.

    Returns:
        `SUMMARY_PROCESSES`.
    """
    first = range(len(reports)) if first is None else first
    processes = pl.concat(
        frames[name].select("process_key").unique().with_columns(report=pl.lit(number, pl.UInt32))
        for number, frames in zip(first, reports, strict=True)
        for name in ("host_times", "op_aggregates")
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
    columns = [name for name in SUMMARY_PROCESSES if name != "process"]
    schema = {name: SUMMARY_PROCESSES[name] for name in columns}
    both = pl.concat(
        frame.select(pl.col(name).cast(schema[name]) for name in columns) for frame in (lanes, others)
    )
    return conform(both.with_row_index("process"), SUMMARY_PROCESSES)


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
        numbers: lane, step of the report, and run_step; lanes have the same numbers as their rows of `SUMMARY_PROCESSES`.
        join: Replaces the report and the steps of rows by those in `processes` and `numbers`, where they differ.

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
        if "device_id" in frame.columns:
            on_device = frame.join(at_device, on=at_device.columns[:3], how="left", maintain_order="left")
            of_process = frame.select(_PROCESS).join(
                at_process, on=_PROCESS, how="left", maintain_order="left"
            )
            process = on_device["process"].fill_null(of_process["process"])
        else:
            process = frame.join(at_process, on=_PROCESS, how="left", maintain_order="left")["process"]
        keyless = frame.drop("report", "process_key", "device_id", strict=False)
        placed[name] = (
            keyless.insert_column(0, process)
            .join(steps, on=["process", "step"], how="left", maintain_order="left")
            .with_columns(step="run_step")
            .drop("run_step")
        )
    return placed
