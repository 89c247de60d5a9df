"""Expected training of a simulated run, built from its truth; also input of charts, tables and outputs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from fixtures import options
from fixtures.recording.assignment import build_recordings
from fixtures.simulate import train
from fixtures.truth.tables import write_truth
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    COVER,
    IDEAL,
    KERNEL_AGGREGATES,
    LANE_BATCHES,
    LANE_GAPS,
    LANE_OVERHEADS,
    LANE_STATES,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    TRANSFERS,
    Schedule,
    Training,
)

PIPELINE = Path(__file__).parent.parent.parent / "fixtures" / "pipeline"

_KINDS = {"weight": "weight_gradient"}
_CAUSES = {"optimizer": "compute"}


def expected_training(folder: Path = PIPELINE, *, schedule: str = "1f1b") -> Training:
    """Return the training of the simulated reports in `folder`, from their truth; times are true UTC.

    Jobs are those of the compute stream (forwards, backwards, ...); their host times, which the truth
    does not hold, are their GPU times. Arrows are the messages of which both sides ran.
    """
    truth = {path.stem: pl.read_parquet(path) for path in sorted((folder / "truth").glob("*.parquet"))}
    lanes = expected_lanes(truth["processes"])
    of_rank = dict(lanes.select("rank", "lane").iter_rows())
    jobs = expected_jobs(truth["jobs"], of_rank)
    lane_states = expected_lane_states(truth["causes"], jobs, of_rank)
    steps = lane_states.group_by("lane", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return Training(
        lanes=lanes,
        steps=conform(steps.with_columns(is_partial=pl.lit(False), source=pl.lit("range")), RUN_STEPS).sort(
            "step", "lane"
        ),
        batches=LANE_BATCHES.to_frame(),
        jobs=jobs,
        transfers=expected_transfers(truth["messages"], of_rank),
        lane_states=lane_states,
        cover=COVER.to_frame(),
        gaps=LANE_GAPS.to_frame(),
        ideal=IDEAL.to_frame(),
        kernels=KERNEL_AGGREGATES.to_frame()
        .drop("process_key", "device_id")
        .with_columns(lane=pl.lit(0, pl.UInt32)),
        overheads=LANE_OVERHEADS.to_frame(),
        schedule=Schedule(
            name=schedule,
            source="given",
            stage_count=lanes["stage"].n_unique(),
            micro_batch_count=jobs["micro_batch"].n_unique(),
            chunk_count=jobs["chunk"].n_unique(),
            agreement=1.0,
        ),
        preset="plain",
        zero_ns=int(truth["clocks"]["capture_utc_ns"].min()),  # type: ignore[arg-type]
    )


def expected_lanes(processes: pl.DataFrame) -> pl.DataFrame:
    ordered = processes.sort("stage", "replica", "tensor", "rank")
    reports = {name: number for number, name in enumerate(sorted(ordered["report"].unique()))}
    return conform(
        ordered.with_columns(
            lane=pl.int_range(pl.len()),
            report=pl.col("report").replace_strict(reports),
            process_key=pl.col("pid"),
            gpu=pl.format("GPU {}", "gpu"),
            stage_source=pl.lit("--layout"),
            stage_count=pl.lit(None),
            run_size=pl.lit(None),
            label=pl.format("rank {}", "rank"),
            clock=pl.col("report").replace_strict(reports),
            clock_group=pl.lit(0),
            bound_ns=pl.lit(0),
        ),
        LANES,
    )


def expected_jobs(jobs: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    whole = jobs.filter(~pl.col("is_part")).with_columns(
        kind=pl.col("kind").replace(_KINDS), lane=pl.col("rank").replace_strict(of_rank)
    )
    parts = jobs.filter("is_part", kind="backward").select(
        "rank",
        "step",
        "start_ns",
        backward_micro_batch="micro_batch",
        backward_chunk="chunk",
    )
    # the parts of an overlapped job lie within it; its backward is the one that began last before its end
    both = whole.filter(kind="forward_backward").sort("start_ns")
    found = both.join_where(
        parts.rename({"rank": "part_rank", "step": "part_step", "start_ns": "part_ns"}),
        pl.col("rank") == pl.col("part_rank"),
        pl.col("part_ns") >= pl.col("start_ns"),
        pl.col("part_ns") < pl.col("end_ns"),
    ).select("rank", "start_ns", "backward_micro_batch", "backward_chunk")
    named = whole.join(found, on=["rank", "start_ns"], how="left").sort("lane", "start_ns")
    duration = pl.col("end_ns") - pl.col("start_ns")
    label = (
        pl.when(pl.col("backward_micro_batch").is_not_null())
        .then(pl.format("{}F+{}B", "micro_batch", "backward_micro_batch"))
        .otherwise(pl.col("micro_batch").cast(pl.String))
    )
    return conform(
        named.with_columns(
            job=pl.int_range(pl.len()),
            outer=pl.lit(None),
            direction=pl.lit(None),
            virtual_stage=pl.lit(None),
            backward_virtual_stage=pl.lit(None),
            is_inferred=pl.lit(False),
            confidence=pl.lit(None),
            phase=pl.lit(None),
            label=label,
            name=pl.format("{}_{}", "kind", "micro_batch"),
            role=pl.lit(None),
            range_id=pl.int_range(pl.len()),
            busy_ns=duration,
            compute_start_ns="start_ns",
            compute_end_ns="end_ns",
            compute_ns=duration,
            host_start_ns="start_ns",
            host_end_ns="end_ns",
            launch_delay_ns=pl.lit(0),
            op_count=pl.lit(1),
        ),
        RUN_JOBS,
    )


def expected_transfers(messages: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    both = messages.drop_nulls(["send_start_ns", "receive_start_ns"])
    receive_wait = (pl.min_horizontal("send_start_ns", "receive_end_ns") - pl.col("receive_start_ns")).clip(0)
    send_wait = (pl.min_horizontal("receive_start_ns", "send_end_ns") - pl.col("send_start_ns")).clip(0)
    is_buffered = pl.col("send_end_ns") < pl.col("receive_start_ns")
    return conform(
        both.with_columns(
            sender=pl.col("sender").replace_strict(of_rank),
            receiver=pl.col("receiver").replace_strict(of_rank),
            direction="kind",
            size_bytes=pl.lit(None),
            send_wait_ns=pl.when(is_buffered).then(0).otherwise(send_wait),
            receive_wait_ns=receive_wait,
            transfer_ns=pl.col("receive_end_ns") - pl.col("receive_start_ns") - receive_wait,
            is_buffered=is_buffered,
            bound_ns=pl.lit(0),
            source=pl.lit("truth"),
            doubtful=pl.lit(None),
        ).sort("send_start_ns"),
        TRANSFERS,
    )


def expected_lane_states(causes: pl.DataFrame, jobs: pl.DataFrame, of_rank: dict[int, int]) -> pl.DataFrame:
    lane = pl.col("rank").replace_strict(of_rank, return_dtype=pl.UInt32)
    is_backward = pl.col("kind").is_in(["backward", "forward_backward"])
    is_forward = pl.col("kind").is_in(["forward", "forward_backward"])
    edges = jobs.group_by("lane", "step").agg(
        first_backward_ns=pl.col("start_ns").filter(is_backward).min(),
        last_forward_ns=pl.col("end_ns").filter(is_forward).max(),
    )
    located = (
        causes.with_columns(
            lane=lane,
            waits_for=pl.col("waits_for").replace_strict(of_rank, default=None, return_dtype=pl.UInt32),
            cause=pl.col("cause").replace(_CAUSES),
        )
        .join(edges, on=["lane", "step"], how="left")
        .sort("lane", "start_ns")
    )
    position = (
        pl.when(pl.col("start_ns") < pl.col("first_backward_ns"))
        .then(pl.lit("warm-up"))
        .when(pl.col("start_ns") >= pl.col("last_forward_ns"))
        .then(pl.lit("cool-down"))
        .otherwise(pl.lit("steady"))
    )
    return conform(located.with_columns(position=position), LANE_STATES)


def measure_own_compute(training: Training) -> Training:
    """Subtract the time without compute on the lane from each job's compute: collectives inside jobs."""
    lanes = []
    for (lane,), jobs in training.jobs.partition_by("lane", as_dict=True).items():
        lane_states = training.lane_states.filter(lane=lane).sort("start_ns")
        edges = np.append(lane_states["start_ns"].to_numpy(), lane_states["end_ns"][-1])
        is_compute = (lane_states["cause"] == "compute").to_numpy()
        elapsed = np.concatenate([[0], np.cumsum(np.diff(edges) * is_compute)])
        ends = [
            np.interp(
                (jobs[column].to_numpy() - edges[0]).astype(float), (edges - edges[0]).astype(float), elapsed
            )
            for column in ("compute_start_ns", "compute_end_ns")
        ]
        lanes.append(jobs.with_columns(compute_ns=pl.Series((ends[1] - ends[0]).round().astype(np.int64))))
    return replace(training, jobs=pl.concat(lanes))


@cache
def simulate_training(text: str = "") -> Training:
    """Simulate a run of four stages of two replicas and return its truth.

    `text`: options of the simulator.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        schedule = simulate_truth(folder, f"--pp 4 --dp 2 --micro-batches 4 --layers 2 --steps 4 {text}")
        return measure_own_compute(expected_training(folder, schedule=schedule))


def simulate_truth(folder: Path, text: str) -> str:
    """Write the truth of a simulated run into `folder`, without reports; return its schedule."""
    chosen = options.build_parser().parse_args([str(folder), *text.split()])
    workers = train(options.build_training(chosen), seed=chosen.seed)
    recordings = build_recordings(
        workers,
        folder,
        site=options.build_site(chosen),
        errors=options.build_clock_errors(chosen),
        seed=chosen.seed,
    )
    write_truth(recordings, folder / "truth", is_brief=True)
    return str(chosen.schedule)
