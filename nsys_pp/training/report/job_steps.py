"""Step detection from jobs, for devices without step ranges."""

from __future__ import annotations

import polars as pl

from nsys_pp.frames.conform import build_schema, conform

_DEVICE = ["process_key", "device_id"]
_FORWARDS = ("forward", "forward_backward")
_RECEIVES = ("receive", "send_receive")
_BETWEEN_STEPS = ("receive", "data", "other")  # kinds of jobs that run before the first forward of a step
_JOB_STEPS = build_schema(
    {  # one row per step and device
        "process_key": pl.Int64,
        "device_id": pl.Int32,
        "first_ns": pl.Int64,  # start of its first kernel that is not communication
        "host_start_ns": pl.Int64,  # on the CPU
        "host_end_ns": pl.Int64,
        "is_partial": pl.Boolean,  # the capture began inside it
    },
    name="_JOB_STEPS",
)


def find_job_steps(computed_jobs: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the steps of devices without step ranges.

    Args:
        computed_jobs: `JOBS` with compute kernels, on devices without step ranges.
        jobs: All `JOBS`.

    Returns:
        `_JOB_STEPS`, in no order; no rows for devices with a single step.
    """
    first_forwards = _find_first_forwards(computed_jobs)
    if first_forwards.is_empty():
        return _JOB_STEPS.to_frame()
    before = (
        jobs.filter(~pl.col("kind").is_in(_BETWEEN_STEPS))
        .sort("process_key", "host_start_ns")
        .select(
            "process_key",
            "host_start_ns",
            previous_end_ns=pl.col("host_end_ns").cum_max().over("process_key"),
        )
        .sort("host_start_ns")
    )
    following_steps = first_forwards.sort("host_start_ns").join_asof(
        before, on="host_start_ns", by="process_key", allow_exact_matches=False, check_sortedness=False
    )
    later = following_steps.select(
        *_DEVICE,
        first_ns="compute_start_ns",
        host_start_ns=pl.min_horizontal("previous_end_ns", "host_start_ns"),
    )
    first = (
        computed_jobs.join(first_forwards, on=_DEVICE, how="semi")
        .group_by(_DEVICE)
        .agg(pl.col("compute_start_ns").min())
    )
    host = jobs.group_by("process_key").agg(
        pl.col("host_start_ns").min(),
        last_ns=pl.col("host_end_ns").max(),
        has_receives=pl.col("kind").is_in(_RECEIVES).any(),
    )
    earliest = first.join(host, on="process_key").select(
        *_DEVICE, first_ns="compute_start_ns", host_start_ns="host_start_ns"
    )
    following = pl.col("host_start_ns").shift(-1).over(_DEVICE)
    return (
        pl.concat([earliest, later])
        .sort(*_DEVICE, "host_start_ns")
        .join(host.select("process_key", "last_ns", "has_receives"), on="process_key", maintain_order="left")
        .with_columns(
            host_end_ns=following.fill_null(pl.col("last_ns")),
            is_partial=pl.col("host_start_ns").shift().over(_DEVICE).is_null() & ~pl.col("has_receives"),
        )
        .pipe(conform, _JOB_STEPS)
    )


def _find_first_forwards(computed_jobs: pl.DataFrame) -> pl.DataFrame:
    """Find the first forward of every step except the first step.

    The micro-batches of the first chunk restart at it; where forwards have no micro-batch, it follows an optimizer.
    """
    forwards = computed_jobs.filter(pl.col("kind").is_in(_FORWARDS))
    if forwards.is_empty():
        return forwards
    outer = forwards.select("process_key", outer_id="range_id")
    order = (
        computed_jobs.filter(pl.col("kind").is_in([*_FORWARDS, "optimizer"]))
        .join(outer, on=["process_key", "outer_id"], how="anti")
        .sort(*_DEVICE, "host_start_ns")
        .with_columns(part=pl.coalesce("virtual_stage", "chunk", 0), is_forward=pl.col("kind") != "optimizer")
    )
    is_counted = (pl.col("micro_batch").is_not_null() | ~pl.col("is_forward")).all().over(_DEVICE)
    starts = order.filter(is_counted, "is_forward").filter(
        pl.col("part") == pl.col("part").min().over(_DEVICE)
    )
    restarts = starts.filter(pl.col("micro_batch") <= pl.col("micro_batch").shift().over(_DEVICE))
    after_optimizer = order.filter(~is_counted).filter(
        "is_forward", ~pl.col("is_forward").shift().over(_DEVICE)
    )
    return pl.concat([restarts, after_optimizer])
