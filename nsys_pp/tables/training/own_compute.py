"""Own compute of lanes: the compute time of their jobs in a step, without waiting for other lanes."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import MICRO_BATCH_KINDS, Training

OWN_COMPUTE = build_schema(
    {  # one row per lane of a known stage and step, complete or not; by step, lane
        "lane": pl.UInt32,
        "stage": pl.Int64,
        "step": pl.Int64,
        "compute_ns": pl.Int64,  # compute of its jobs: kernels other than communication
        "cycle_ns": pl.Int64,  # sum over its jobs of the time from the first to the last such kernel
        "micro_batch_count": pl.Int64,  # at least 1
    },
    name="OWN_COMPUTE",
)


def select_outermost(jobs: pl.DataFrame, kinds: Collection[str]) -> pl.DataFrame:
    """Select the jobs of these kinds that compute; only the outer one of nested jobs."""
    chosen = jobs.filter(pl.col("kind").is_in(kinds), pl.col("compute_start_ns").is_not_null())
    if chosen["outer"].null_count() == len(chosen):
        return chosen
    return chosen.join(chosen.select(outer="job"), on="outer", how="anti")


def has_all_jobs() -> pl.Expr:
    """Return whether a row of a micro-batch (`micro_batch` of 0 or more, `job_count`) counts as many jobs as any.

    In a step that the capture cuts, the forward of a micro-batch may lie before it, and its backward is recorded.
    """
    is_numbered = pl.col("micro_batch") >= 0
    return is_numbered & (pl.col("job_count") == pl.col("job_count").filter(is_numbered).max())


def list_own_jobs(training: Training) -> pl.DataFrame:
    """List the outermost jobs of micro-batches in steps of lanes of known stages: `RUN_JOBS` with stage."""
    return (
        select_outermost(training.jobs, MICRO_BATCH_KINDS)
        .join(training.lanes.select("lane", "stage"), on="lane", how="left")
        .filter(pl.col("stage").is_not_null(), pl.col("step").is_not_null())
    )


def sum_own_compute(training: Training) -> pl.DataFrame:
    """Sum the own compute of each lane in each step.

    Returns:
        `OWN_COMPUTE`. The number of micro-batches is that of the schedule, otherwise that of the jobs.
    """
    scheduled = training.schedule.micro_batch_count
    micro_batch_count = pl.lit(scheduled) if scheduled else pl.col("micro_batch").n_unique()
    return (
        list_own_jobs(training)
        .group_by("lane", "stage", "step")
        .agg(
            pl.col("compute_ns").sum(),
            cycle_ns=(pl.col("compute_end_ns") - pl.col("compute_start_ns")).sum(),
            micro_batch_count=micro_batch_count,
        )
        .sort("step", "lane")
        .pipe(conform, OWN_COMPUTE)
    )
