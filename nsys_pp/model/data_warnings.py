"""Reasons to doubt a report, in sentences: lost events, and clocks of GPUs that are off."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.arrays.launch_calls import find_launch_calls
from nsys_pp.frames.data_warnings import LOSS, REPORT
from nsys_pp.frames.report import KERNEL_KINDS, MOST_EARLY_NS, Report
from nsys_pp.model.diagnostics import list_losses
from nsys_pp.units import format_duration

_LEAST_SHARE = 0.01  # of the operations of a GPU
_LEAST_HELD = 0.02  # of the time of launching threads


def find_data_warnings(report: Report, launches: pl.DataFrame, *, with_unlaunched: bool = True) -> list[str]:
    """Find the reasons to doubt the events of a report.

    Args:
        report: Read with operations.
        launches: `LAUNCHES` of its calls and operations.
        with_unlaunched: Include absent kernels and calls.

    Returns:
        Sentences with `REPORT` in place of the name of the report. Empty without a reason.
    """
    losses = [f"{LOSS}{text}" for text in list_losses(report.diagnostics)]
    unlaunched = _find_unlaunched(report, launches) if with_unlaunched else []
    return [*losses, *unlaunched, *_find_early_devices(report, launches), *_find_overhead(report, launches)]


def _find_unlaunched(report: Report, launches: pl.DataFrame) -> list[str]:
    """Describe absent kernels and calls, and operations without a call."""
    ops = report.gpu_ops
    if ops.is_empty() or report.ranges.is_empty():
        return []
    found = []
    if not is_among(ops["kind"], KERNEL_KINDS).any():
        found.append(f"{REPORT} has copies and memory sets, but no kernels")
    if report.api_calls.is_empty():
        return [*found, f"{REPORT} has no CUDA calls, so no range is projected onto its GPU operations"]
    op = launches["op_id"].to_numpy()  # ascends
    launched = len(op) - np.count_nonzero(op[1:] == op[:-1])
    if (lost := len(ops) - launched) > _LEAST_SHARE * len(ops):
        found.append(
            f"{lost:,} of {len(ops):,} GPU operations in {REPORT} lack the CUDA call that launched them: no range is projected"
            " onto them"
        )
    return found


def _find_overhead(report: Report, launches: pl.DataFrame) -> list[str]:
    """Describe the time in which nsys held threads between their first and last launch, where it is a large share."""
    if report.overheads.is_empty() or launches.is_empty():
        return []
    spans = (
        report.api_calls[launches["call_row"].to_numpy()]
        .group_by("thread_key")
        .agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    )
    inside = (
        report.overheads.filter("is_of_profiler")
        .join(spans, on="thread_key", how="inner")
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "first_ns"), end_ns=pl.min_horizontal("end_ns", "last_ns")
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .sort("thread_key", "start_ns")
    )
    # of intervals inside others, the part after those that began before
    reach = pl.col("end_ns").cum_max().shift(1).over("thread_key").fill_null(pl.col("start_ns"))
    own_ns = pl.col("end_ns") - pl.max_horizontal("start_ns", pl.min_horizontal("end_ns", reach))
    held = inside.with_columns(own_ns=own_ns)
    whole_ns = int((spans["last_ns"] - spans["first_ns"]).sum())
    held_ns = int(held["own_ns"].sum())
    if held_ns <= _LEAST_HELD * whole_ns:
        return []
    names = held.group_by("name").agg(pl.col("own_ns").sum()).sort("own_ns", "name", descending=True)
    return [
        f"nsys held the threads that launch in {REPORT} for {100 * held_ns / whole_ns:.1f} % of the time from their first to"
        f" their last launch, most in {names['name'][0] or 'overhead without a name'}: `pipeline --table overhead` lists it by step"
    ]


def _find_early_devices(report: Report, launches: pl.DataFrame) -> list[str]:
    """Describe the GPUs whose operations start before the calls that launched them, by more than clocks differ."""
    ops, calls = report.gpu_ops, report.api_calls
    call = find_launch_calls(ops["op_id"], gpu_ops=ops, api_calls=calls, launches=launches)
    known = np.flatnonzero(call >= 0)
    early = calls["start_ns"].to_numpy()[call[known]] - ops["start_ns"].to_numpy()[known]
    if not (early > MOST_EARLY_NS).any():
        return []
    launched = (
        ops.select("process_key", "device_id")[known]
        .with_columns(early_ns=pl.Series(early))
        .join(
            report.devices.select("process_key", "device_id", "gpu"),
            on=["process_key", "device_id"],
            how="left",
        )
        .group_by("gpu")
        .agg(
            count=pl.len(),
            early_count=(pl.col("early_ns") > MOST_EARLY_NS).sum(),
            early_ns=pl.col("early_ns").max(),
        )
        .filter(pl.col("early_count") > _LEAST_SHARE * pl.col("count"))
        .sort("gpu")
    )
    return [
        f"the clock of {gpu or 'a GPU'} in {REPORT} is off: {early_count:,} of {count:,} operations start up to"
        f" {format_duration(early_ns)} before the call that launched them, so these delays of launches are left out"
        for gpu, count, early_count, early_ns in launched.rows()
    ]
