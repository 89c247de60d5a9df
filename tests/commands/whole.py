"""Whole runs, from simulated reports to the training that is found in them, beside the truth."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import Training
from tests.training.expected_training import expected_training, split_either

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
    """Say by how much sums of causes are wrong: rank, step, cause, true_ns, found_ns, error_ns.

    Unsplit time is right as far as it is of the message or collective.
    """
    true, found = sums_of(whole.true), sums_of(whole.found)
    rows = []
    for key in sorted(true.keys() | found.keys()):
        of_true = true.get(key, {})
        of_found = split_either(found.get(key, {}), of_true)
        rows += [
            (*key, cause, of_true.get(cause, 0), of_found.get(cause, 0))
            for cause in sorted(of_true.keys() | of_found.keys())
        ]
    frame = pl.DataFrame(rows, schema=["rank", "step", "cause", "true_ns", "found_ns"], orient="row")
    return frame.with_columns(error_ns=(pl.col("found_ns") - pl.col("true_ns")).abs())


def sums_of(training: Training) -> dict[tuple[int, int], dict[str, int]]:
    """Return the time of each cause, by rank and step."""
    sums: dict[tuple[int, int], dict[str, int]] = {}
    for rank, step, cause, total_ns in (
        causes_of(training).select("rank", "step", "cause", "total_ns").iter_rows()
    ):
        sums.setdefault((rank, step), {})[cause] = total_ns
    return sums
