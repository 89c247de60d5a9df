"""What a known training leaves open: who is late in every wait, and what jobs compute by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from nsys_pp.frames.training import Training


def name_the_late(training: Training, folder: Path) -> Training:
    """Fill `waits_for` from the truth: a wait ends when the sender, or the last member, begins."""
    of_rank = dict(training.lanes.select("rank", "lane").iter_rows())
    collectives = pl.read_parquet(folder / "truth" / "collectives.parquet").with_columns(
        lane=pl.col("rank").replace_strict(of_rank, return_dtype=pl.UInt32)
    )
    group = ["communicator", "instance"]
    last = (
        collectives.sort("start_ns")
        .group_by(group)
        .agg(pl.col("lane").last().alias("late"), pl.col("start_ns").last().alias("end_ns"))
    )
    members = collectives.select("lane", *group).join(last, on=group).select("lane", "end_ns", "late")
    senders = training.transfers.select(lane="receiver", end_ns="send_start_ns", late="sender")
    lane_states = training.lane_states
    for cause, late in (("message_wait", senders), ("collective_wait", members)):
        found = lane_states.join(late.unique(["lane", "end_ns"]), on=["lane", "end_ns"], how="left")
        lane_states = found.with_columns(
            waits_for=pl.when(pl.col("cause") == cause).then("late").otherwise("waits_for")
        ).drop("late")
    return replace(training, lane_states=lane_states.sort("lane", "start_ns"))


def measure_own_compute(training: Training) -> Training:
    """Take out of each job's compute what its lane does not compute meanwhile: collectives inside of jobs."""
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
