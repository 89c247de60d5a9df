"""Jobs between the ranges of messages on the CPU, where no range is a forward or a backward.

thread   [ recv_forward ) F launches [ send_forward )[ recv_backward ) B launches [ send_backward )

A message is sent after its job, so the launches before a send of activations are a forward, and those before a send of
gradients a backward. Megatron-LM has ranges of its sends on all stages, also where a stage sends nothing.
"""

from __future__ import annotations

import polars as pl

from nsys_pp.arrays.columns import is_among
from nsys_pp.frames.conform import conform_part
from nsys_pp.frames.training import MESSAGE_KINDS, SCHEDULED_KINDS
from nsys_pp.training.report.vocabulary import NAMED_JOBS


def list_gaps(named_jobs: pl.DataFrame) -> pl.DataFrame:
    """List the gaps between the ranges of messages on each thread.

    Args:
        named_jobs: `NAMED_JOBS`.

    Returns:
        `NAMED_JOBS` of kind "other", by thread and start, with ids of their own. Empty if a range is a forward or a
        backward.
    """
    if is_among(named_jobs["kind"], SCHEDULED_KINDS).any():
        return NAMED_JOBS.to_frame()
    messages = named_jobs.filter(pl.col("kind").is_in(MESSAGE_KINDS), pl.col("end_thread_key").is_null())
    if messages.is_empty():
        return NAMED_JOBS.to_frame()
    gaps = (
        messages.sort("thread_key", "start_ns")
        .select(
            "process_key",
            "thread_key",
            start_ns=pl.col("end_ns").shift(1).over("thread_key"),
            end_ns="start_ns",
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
    )
    first_id = int(named_jobs["range_id"].to_numpy().max()) + 1
    return conform_part(
        gaps.with_columns(
            range_id=first_id + pl.int_range(pl.len(), dtype=pl.Int64),
            kind=pl.lit("other"),
            is_open=pl.lit(value=False),
        ),
        NAMED_JOBS,
    )


def find_gap_jobs(
    named_jobs: pl.DataFrame, halves: pl.DataFrame, gaps: pl.DataFrame, compute: pl.DataFrame
) -> pl.DataFrame:
    """Find the gaps that are jobs: they compute, and messages of one direction are sent before the next such gap.

    Args:
        named_jobs: `NAMED_JOBS`.
        halves: `HALVES`, for the direction of sends that also receive.
        gaps: From `list_gaps`.
        compute: `COMPUTED` of them.

    Returns:
        `NAMED_JOBS` of kinds "forward" and "backward". Empty if the direction of a send is unknown, if a gap is
        followed by sends of both directions, or if a thread has not as many forwards as backwards: then some jobs have
        no range of a send.
    """
    computes = gaps.join(compute.select("range_id").unique(), on="range_id", how="semi")
    if computes.is_empty():
        return NAMED_JOBS.to_frame()
    sends = (
        named_jobs.filter(pl.col("kind").is_in(("send", "send_receive")))
        .join(halves.select("name", "send_direction"), on="name", how="left")
        .select("thread_key", "start_ns", sent=pl.coalesce("send_direction", "direction"))
        .sort("start_ns")
    )
    if sends["sent"].has_nulls():
        return NAMED_JOBS.to_frame()
    after = sends.join_asof(
        computes.sort("end_ns").select("thread_key", "range_id", "end_ns"),
        left_on="start_ns", right_on="end_ns", by="thread_key", strategy="backward", check_sortedness=False,
    )  # fmt: skip
    directions = after.drop_nulls("range_id").group_by("range_id").agg(pl.col("sent").unique())
    if (directions["sent"].list.len() > 1).any():
        return NAMED_JOBS.to_frame()
    jobs = computes.join(directions.with_columns(pl.col("sent").list.first()), on="range_id").with_columns(
        kind=pl.col("sent").cast(pl.String)
    )
    forwards = pl.col("kind") == "forward"
    balance = jobs.group_by("thread_key").agg(forwards.sum().alias("forwards"), total=pl.len())
    if (2 * balance["forwards"] != balance["total"]).any():
        return NAMED_JOBS.to_frame()
    return conform_part(jobs.with_columns(direction=None), NAMED_JOBS).sort("range_id")
