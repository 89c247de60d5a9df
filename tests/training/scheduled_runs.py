"""Runs with the jobs of a schedule, simulated or built directly, and their unresolved jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from fixtures.program.schedule import chunks_of
from nsys_pp.frames.conform import build_schema
from nsys_pp.frames.training import (
    COVER,
    JOBS,
    LANE_STATES,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    SCHEDULED_KINDS,
    STEPS,
    TRANSFERS,
    Schedule,
    Training,
)
from nsys_pp.options import SCHEDULES
from nsys_pp.training.orders import order_jobs
from tests.training.expected_training import expected_training, simulate_truth

IDS = ("micro_batch", "chunk", "backward_micro_batch", "backward_chunk")
_NO_LANE = ("process_key", "device_id")
JOBS_BY_LANE = build_schema(
    {"lane": pl.UInt32, **{name: dtype for name, dtype in JOBS.items() if name not in _NO_LANE}}
)
STEPS_BY_LANE = build_schema(
    {"lane": pl.UInt32, **{name: dtype for name, dtype in STEPS.items() if name not in _NO_LANE}}
)
RUNS = {  # schedule and chunks -> options
    "gpipe": "--schedule gpipe",
    "1f1b": "--schedule 1f1b --dp 2",
    "interleaved": "--schedule interleaved --chunks 2",
    "interleaved in 3": "--schedule interleaved --chunks 3",
    "zb-h1": "--schedule zb-h1 --tp 2",
    "dualpipev": "--schedule dualpipev --micro-batches 10",
}


@cache
def simulate_run(arguments: str) -> Training:
    """Return the truth of a simulated run of two steps; no report is written."""
    with TemporaryDirectory() as name:
        schedule = simulate_truth(Path(name), f"--layers 1 --steps 2 {arguments}")
        return expected_training(Path(name), schedule=schedule)


def build_unresolved_jobs(training: Training, *, hidden: Sequence[str] = ()) -> pl.DataFrame:
    """Return the jobs as `JOBS` by lane, with the hidden ids null."""
    jobs = training.jobs.with_columns(pl.lit(None).alias(name) for name in hidden)
    return fill_columns(jobs.with_columns(outer_id="outer"), JOBS_BY_LANE)


def fill_columns(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return `frame` with the columns of `schema`, null where it lacks them."""
    absent = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
    return frame.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def build_scheduled_run(
    schedule: str, *, stages: int, micro_batches: int, chunks: int = 1, replicas: int = 1, steps: int = 2
) -> Training:
    """Build a run without a simulation: every lane runs its jobs of 900 ns, one every microsecond."""
    jobs_of_lanes: list[pl.DataFrame] = []
    lanes: list[dict[str, int]] = []
    for stage in range(stages):
        order = order_jobs(schedule, stage=stage, stages=stages, micro_batches=micro_batches, chunks=chunks)
        columns = {name: getattr(order, name) for name in IDS}
        jobs_of_stage = pl.DataFrame(
            {"kind": [SCHEDULED_KINDS[kind] for kind in order.kind], **columns}
        ).with_columns(pl.when(pl.col(name) >= 0).then(name).alias(name) for name in IDS)
        for replica in range(replicas):
            lane = len(lanes)
            lanes.append({"lane": lane, "stage": stage, "replica": replica, "tensor": 0, "rank": lane})
            jobs_of_lanes += [
                jobs_of_stage.with_columns(
                    lane=lane, step=step, start_ns=1000 * pl.int_range(pl.len()) + step * 10**6
                )
                for step in range(steps)
            ]
    jobs = pl.concat(jobs_of_lanes).with_columns(
        job=pl.int_range(pl.len()),
        range_id=pl.int_range(pl.len()),
        end_ns=pl.col("start_ns") + 900,
        compute_start_ns="start_ns",
        compute_end_ns=pl.col("start_ns") + 900,
        compute_ns=900,
        is_inferred=False,
    )
    spans = jobs.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return replace(
        expected_training(),
        lanes=fill_columns(pl.DataFrame(lanes), LANES),
        steps=fill_columns(
            spans.with_columns(is_partial=False, source=pl.lit("range")).sort("step", "lane"), RUN_STEPS
        ),
        jobs=fill_columns(jobs, RUN_JOBS),
        transfers=TRANSFERS.to_frame(),
        lane_states=LANE_STATES.to_frame(),
        cover=COVER.to_frame(),
        schedule=Schedule(
            name=schedule,
            source="given",
            stage_count=stages,
            micro_batch_count=micro_batches,
            chunk_count=chunks,
            agreement=1.0,
        ),
    )


def list_alternatives(
    schedule: str, *, stages: int, micro_batches: int, chunks: int
) -> list[tuple[str, int, int]]:
    """List the other schedules, with micro-batches and chunks, that have all kinds of jobs in this order."""

    def list_kinds(name: str, number: int, parts: int) -> list[list[int]]:
        orders = [
            order_jobs(name, stage=stage, stages=stages, micro_batches=number, chunks=parts)
            for stage in range(stages)
        ]
        return [order.kind.tolist() for order in orders]

    kinds = list_kinds(schedule, micro_batches, chunks)
    total = micro_batches * chunks
    others = [
        (name, total // parts, parts)
        for name in SCHEDULES
        for parts in range(1, total + 1)
        if total % parts == 0 and chunks_of(name, parts) == parts and total // parts >= stages
    ]
    return [
        other
        for other in others
        if other != (schedule, micro_batches, chunks)
        and (other[0] != "dualpipev" or other[1] >= 2 * stages)
        and (other[0] != "interleaved" or other[2] > 1)
        and list_kinds(*other) == kinds
    ]
