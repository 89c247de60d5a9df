"""Whole runs, from simulated reports to the training that is found in them, beside the truth."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import Training
from tests.training.expected_training import expected_training

WORK = ("forward", "backward", "weight_gradient", "forward_backward")
_JOB = ["rank", "step", "kind", "micro_batch", "chunk", "backward_micro_batch", "backward_chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What was found in a run, and what is true of it."""

    found: Training
    true: Training


def run(folder: Path, arguments: str, **options: object) -> Whole:
    """Simulate a run, and find its training in the reports; the truth has no projections, which no training needs."""
    simulate([str(folder), "--brief-truth", *arguments.split()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = nsys_pp.pipeline([folder], **options).training  # type: ignore[arg-type]
    return Whole(found=found, true=expected_training(folder))


def jobs_of(training: Training) -> pl.DataFrame:
    """List the forwards, backwards and weight gradients by rank and time: `_JOB`, start_ns, end_ns."""
    ranks = training.lanes.select("lane", "rank")
    return (
        training.jobs.filter(pl.col("kind").is_in(WORK), pl.col("outer").is_null())
        .join(ranks, on="lane")
        .select(*_JOB, start_ns="compute_start_ns", end_ns="compute_end_ns")
        .with_columns(pl.col("chunk", "backward_chunk").fill_null(0), pl.col("kind").cast(pl.String))
        .sort("rank", "start_ns")
    )


def causes_of(training: Training) -> pl.DataFrame:
    """Sum what lanes did and waited for: rank, step, cause, total_ns."""
    ranks = training.lanes.select("lane", "rank")
    duration = pl.col("end_ns") - pl.col("start_ns")
    return (
        training.lane_states.join(ranks, on="lane")
        .group_by("rank", "step", pl.col("cause").cast(pl.String))
        .agg(total_ns=duration.sum())
    )


def wrong_by(whole: Whole) -> pl.DataFrame:
    """Say by how much sums of causes are wrong: rank, step, cause, true_ns, found_ns, error_ns."""
    keys = ["rank", "step", "cause"]
    return (
        causes_of(whole.true)
        .rename({"total_ns": "true_ns"})
        .join(causes_of(whole.found).rename({"total_ns": "found_ns"}), on=keys, how="full", coalesce=True)
        .with_columns(pl.col("true_ns", "found_ns").fill_null(0))
        .with_columns(error_ns=(pl.col("found_ns") - pl.col("true_ns")).abs())
        .sort(keys)
    )
