"""A large training of random frames, for tests of speed and size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    COVER,
    LANE_STATES,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    TRANSFERS,
    Schedule,
    Training,
)
from tests.training.expected_training import expected_training

ZERO_NS = 1_700_000_000_000_000_000
_FORWARD_NS, _BACKWARD_NS = 10_000_000, 20_000_000


def make_large_training(
    *, lanes: int = 64, steps: int = 10, micro_batches: int = 64, per_stage: int = 4
) -> Training:
    """Make a training of alternating forwards and backwards.

    Each stage one forward later than the previous one.
    """
    random = np.random.default_rng(0)
    per_step = 2 * micro_batches
    lane = np.repeat(np.arange(lanes), steps * per_step)
    step = np.tile(np.repeat(np.arange(steps), per_step), lanes)
    place = np.tile(np.arange(per_step), lanes * steps)
    is_backward = place % 2 == 1
    pair_ns = _FORWARD_NS + _BACKWARD_NS
    step_ns = micro_batches * pair_ns + lanes // per_stage * _FORWARD_NS + 50_000_000
    start = ZERO_NS + step * step_ns + lane // per_stage * _FORWARD_NS + place // 2 * pair_ns
    start = start + is_backward * _FORWARD_NS
    longest = np.where(is_backward, _BACKWARD_NS, _FORWARD_NS)
    frame = pl.DataFrame(
        {
            "lane": lane,
            "step": step,
            "micro_batch": place // 2,
            "kind": np.where(is_backward, "backward", "forward"),
            "start_ns": start,
            "end_ns": start + (longest * random.uniform(0.85, 0.98, lane.size)).astype(np.int64),
        }
    )
    jobs = _jobs(frame)
    return replace(
        expected_training(),
        lanes=_lanes(lanes, per_stage),
        steps=_steps(jobs),
        jobs=jobs,
        transfers=_transfers(jobs, lanes - per_stage, per_stage),
        lane_states=_lane_states(jobs),
        cover=COVER.to_frame(),
        schedule=Schedule(
            name="1f1b",
            source="recognised",
            stage_count=lanes // per_stage,
            micro_batch_count=micro_batches,
            chunk_count=1,
            agreement=0.98,
        ),
        zero_ns=ZERO_NS,
    )


def _jobs(frame: pl.DataFrame) -> pl.DataFrame:
    nothing = [name for name in RUN_JOBS if name not in frame.columns]
    duration = pl.col("end_ns") - pl.col("start_ns")
    known = frame.with_columns(pl.lit(None).alias(name) for name in nothing).with_columns(
        job=pl.int_range(pl.len()),
        chunk=pl.lit(0),
        is_inferred=pl.lit(False),
        label=pl.col("micro_batch").cast(pl.String),
        name=pl.format("{}_{}", "kind", "micro_batch"),
        range_id=pl.int_range(pl.len()),
        busy_ns=duration,
        compute_start_ns="start_ns",
        compute_end_ns="end_ns",
        compute_ns=duration,
        host_start_ns="start_ns",
        host_end_ns="end_ns",
        launch_delay_ns=pl.lit(1_000),
        op_count=pl.lit(3),
    )
    return conform(known, RUN_JOBS)


def _transfers(jobs: pl.DataFrame, last: int, per_stage: int) -> pl.DataFrame:
    known = jobs.filter(pl.col("kind") == "forward", pl.col("lane") < last).select(
        "step",
        "micro_batch",
        sender="lane",
        receiver=pl.col("lane") + per_stage,
        direction=pl.lit("forward"),
        size_bytes=pl.lit(None),
        send_start_ns="end_ns",
        send_end_ns=pl.col("end_ns") + 1_000_000,
        receive_start_ns=pl.col("end_ns") - 500_000,
        receive_end_ns=pl.col("end_ns") + 1_000_000,
        send_wait_ns=pl.lit(0),
        receive_wait_ns=pl.lit(500_000),
        transfer_ns=pl.lit(1_000_000),
        is_buffered=pl.lit(False),
        bound_ns=pl.lit(5_000),
        source=pl.lit("truth"),
        doubtful=pl.lit(None),
    )
    return conform(known.sort("send_start_ns"), TRANSFERS)


def _steps(jobs: pl.DataFrame) -> pl.DataFrame:
    hulls = jobs.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return conform(
        hulls.with_columns(is_partial=pl.lit(False), source=pl.lit("range")).sort("step", "lane"),
        RUN_STEPS,
    )


def _lane_states(jobs: pl.DataFrame) -> pl.DataFrame:
    gaps = jobs.select(
        "lane",
        "step",
        position=pl.lit("steady"),
        cause=pl.when(pl.col("job") % 3 == 0).then(pl.lit("message_wait")).otherwise(pl.lit("host")),
        start_ns="end_ns",
        end_ns=pl.col("start_ns").shift(-1).over("lane", "step"),
        waits_for=pl.lit(None),
    )
    return conform(gaps.drop_nulls("end_ns"), LANE_STATES)


def _lanes(count: int, per_stage: int) -> pl.DataFrame:
    known = pl.DataFrame({"lane": np.arange(count)}).with_columns(
        report="lane",
        process_key="lane",
        device_id=pl.col("lane") % 8,
        machine=pl.format("node{}", pl.col("lane") // 8),
        gpu=pl.format("GPU {}", pl.col("lane") % 8),
        rank="lane",
        stage=pl.col("lane") // per_stage,
        stage_source=pl.lit("--layout"),
        stage_count=pl.lit(None),
        run_size=pl.lit(None),
        replica=pl.col("lane") % per_stage,
        tensor=pl.lit(0),
        label=pl.format("rank {}", "lane"),
        clock="lane",
        clock_group=pl.lit(0),
        bound_ns=pl.lit(2_500),
    )
    return conform(known, LANES)
