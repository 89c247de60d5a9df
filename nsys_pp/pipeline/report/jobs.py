"""Ranges that are jobs -> when they ran on which device, and in which step."""

from __future__ import annotations

import polars as pl

from nsys_pp.schema import conform
from nsys_pp.training import JOBS

THREADED_KINDS = ("backward", "forward_backward", "weight_gradient")
"""Jobs that other threads may work on as well (PyTorch's autograd does): to be projected with scope "process"."""
_EARLIEST, _LATEST = -(1 << 62), 1 << 62
_DEVICE = ["process_key", "device_id"]


def build_jobs(
    named: pl.DataFrame,
    *,
    projections: pl.DataFrame,
    compute: pl.DataFrame,
    gpu_ops: pl.DataFrame,
    api_calls: pl.DataFrame,
    launches: pl.DataFrame,
) -> pl.DataFrame:
    """Say when jobs ran, on every device that they ran on.

    Args:
        named: `NAMED_JOBS`.
        projections: `PROJECTIONS` of at least these ranges, onto all operations that count.
        compute: `PROJECTIONS` of at least these ranges, onto kernels that are not communication.
        gpu_ops: `GPU_OPS`.
        api_calls: `API_CALLS`.
        launches: `LAUNCHES` of both.

    Returns:
        `JOBS`, with `step` null until `assign_steps`. A job that launched nothing has one row without a
        device. Empty in, empty out.
    """
    key = ["range_id", "device_id"]
    measured = ("busy_ns", "total_ns", "op_count")
    ran = projections.select(*key, *measured, start_ns="gpu_start_ns", end_ns="gpu_end_ns")
    computed = compute.select(
        *key, compute_start_ns="gpu_start_ns", compute_end_ns="gpu_end_ns", compute_ns="busy_ns"
    )
    jobs = named.rename({"start_ns": "host_start_ns", "end_ns": "host_end_ns"})
    wanted = jobs.select("range_id")
    parts = ran.join(wanted, on="range_id", how="semi").join(
        computed.join(wanted, on="range_id", how="semi"), on=key, how="full", coalesce=True
    )
    placed = jobs.join(parts, on="range_id", how="left")
    delays = _launch_delays(placed, gpu_ops, api_calls, launches)
    return (
        placed.join(delays, on=key, how="left")
        .with_columns(step=pl.lit(None))
        .sort("host_start_ns", "range_id", "device_id")
        .pipe(conform, JOBS)
    )


def widen_projections(narrow: pl.DataFrame, wide: pl.DataFrame) -> pl.DataFrame:
    """Replace projections of scope "auto" by those of scope "process", for ranges that several threads work on.

    Args:
        narrow: `PROJECTIONS` of scope "auto".
        wide: `PROJECTIONS` of scope "process", of some of their ranges: jobs of `THREADED_KINDS`.

    Returns:
        `PROJECTIONS`, in no order. Of a range that reached some devices by itself, wide rows of these devices only:
        what other threads did on others meanwhile is not its work.
    """
    reached = narrow.select("range_id", "device_id")
    return pl.concat(
        [
            narrow.join(wide, on="range_id", how="anti"),
            wide.join(reached, on=["range_id", "device_id"], how="semi"),
            wide.join(reached, on="range_id", how="anti"),
        ]
    )


def assign_steps(frame: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Say in which step each row lies: that whose range was open on the CPU of its process when it began.

    A step without a range on the CPU (the first one, where the capture began inside it) has all that
    comes before the others. Rows of frames without `host_start_ns` are in the step in which they start on
    their device.

    Args:
        frame: `JOBS`, or another frame of a report with process_key, device_id, start_ns and step.
        steps: `STEPS` of the same report.

    Returns:
        The same rows in the same order with `step`, null outside all steps.
    """
    if "host_start_ns" not in frame.columns:
        spans = steps.select(*_DEVICE, "start_ns", found="step", until_ns="end_ns")
        return _look_up(frame, spans, at="start_ns", by=_DEVICE)
    first_ns = pl.col("host_start_ns").min().over(_DEVICE)
    spans = steps.select(
        *_DEVICE,
        found="step",
        until_ns=pl.coalesce("host_end_ns", first_ns, _LATEST),
        host_start_ns=pl.col("host_start_ns").fill_null(_EARLIEST),
    )
    on_device = _look_up(frame, spans, at="host_start_ns", by=_DEVICE)
    elsewhere = frame.with_row_index("row").filter(pl.col("device_id").is_null())
    if elsewhere.is_empty():
        return on_device
    hosts = spans.unique(["process_key", "host_start_ns"])
    found = _look_up(elsewhere, hosts, at="host_start_ns", by=["process_key"])
    return on_device.with_columns(on_device["step"].scatter(found["row"], found["step"]))


def _look_up(frame: pl.DataFrame, spans: pl.DataFrame, *, at: str, by: list[str]) -> pl.DataFrame:
    """Fill `step` with `found` of the last span that began by `at`, unless that was over."""
    found = (
        frame.select(*by, at)
        .with_row_index("row")
        .sort(at)
        .join_asof(spans.select(*by, at, "found", "until_ns").sort(at), on=at, by=by, check_sortedness=False)
        .sort("row")
        .select(pl.when(pl.col(at) < pl.col("until_ns")).then("found"))
    )
    return frame.with_columns(step=found["found"])


def _launch_delays(
    jobs: pl.DataFrame, gpu_ops: pl.DataFrame, api_calls: pl.DataFrame, launches: pl.DataFrame
) -> pl.DataFrame:
    """Give range_id, device_id and how long after the call that launched it the first operation started."""
    began = jobs.select(*_DEVICE, "range_id", "host_start_ns", "host_end_ns", "start_ns").drop_nulls()
    first = began.join(gpu_ops.select(*_DEVICE, "start_ns", "op_id"), on=[*_DEVICE, "start_ns"])
    made = launches.join(first, on="op_id")
    calls = api_calls.select(call_ns="start_ns", call_end_ns="end_ns")[made["call_row"]]
    return (
        pl.concat([made, calls], how="horizontal")
        .filter(pl.col("call_ns") >= pl.col("host_start_ns"), pl.col("call_end_ns") <= pl.col("host_end_ns"))
        .group_by("range_id", "device_id")
        .agg(launch_delay_ns=(pl.col("start_ns") - pl.col("call_ns")).min())
    )
