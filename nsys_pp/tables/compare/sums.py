"""Samples and facts of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl

from nsys_pp.frames.aggregates import SAMPLED, RunFacts
from nsys_pp.frames.clock import number_comparable
from nsys_pp.frames.training import Training
from nsys_pp.tables.compare.samples import (
    has_passes,
    sample_bubbles,
    sample_families,
    sample_kernels,
    sample_kinds,
    sample_links,
    sample_ranks,
    sample_stages,
    sample_steps,
)
from nsys_pp.tables.training.iteration_table import list_decodes
from nsys_pp.tables.training.lane_steps import sum_lane_steps
from nsys_pp.tables.training.own_compute import sum_own_compute

_SAMPLERS: Mapping[str, Callable[[Training], pl.DataFrame]] = {
    "steps": sample_steps,
    "bubbles": sample_bubbles,
    "stages": sample_stages,
    "ranks": sample_ranks,
    "links": sample_links,
    "kinds": sample_kinds,
    "families": sample_families,
    "kernels": sample_kernels,
}


def sample_training(training: Training) -> dict[str, pl.DataFrame]:
    """Sample a training: `SAMPLE` by name (`SAMPLED`); of batches of inference, decodes where some are known."""
    compared = _keep_decodes(training)
    return {name: _SAMPLERS[name](compared) for name in SAMPLED}


def describe_training(training: Training) -> RunFacts:
    """Describe a training: the facts that do not depend on its reports.

    Returns:
        The facts; GPUs, versions, recordings and the like are left open.
    """
    training, decodes = _keep_decodes(training), list_decodes(training)
    lanes, schedule = training.lanes, training.schedule
    complete = sum_lane_steps(training).filter("is_whole")
    sources = training.steps.group_by("source").len().sort("len", descending=True)["source"]
    return RunFacts(
        steps=tuple(complete["step"].unique().sort().to_list()),
        step_source=str(sources[0]) if len(sources) else "",
        batches=""
        if training.batches.is_empty()
        else "of unknown kinds"
        if decodes.is_empty()
        else "decodes",
        decode_requests=_finite(decodes["requests"].mean()),
        lane_count=len(lanes),
        machine_count=lanes["machine"].drop_nulls().n_unique(),
        stage_count=schedule.stage_count or _most(lanes["stage_count"]),
        replica_count=lanes["replica"].drop_nulls().n_unique(),
        tensor_count=lanes["tensor"].drop_nulls().n_unique(),
        schedule=schedule.name,
        micro_batch_count=float(schedule.micro_batch_count or _count_micro_batches(training)),
        chunk_count=schedule.chunk_count,
        has_passes=has_passes(training),
        preset=training.preset,
        bound_ns=_bound(lanes),
        is_on_one_clock=number_comparable(lanes).n_unique() <= 1,
    )


def _keep_decodes(training: Training) -> Training:
    """Make steps partial that are batches of inference other than decodes: a prefill is as long as its requests."""
    decodes = list_decodes(training)
    if decodes.is_empty():
        return training
    is_other = ~pl.col("step").is_in(decodes["step"].implode())
    return replace(training, steps=training.steps.with_columns(pl.col("is_partial") | is_other))


def _count_micro_batches(training: Training) -> float:
    """Return the median number of micro-batches of a lane's step; 0 without any."""
    counts = sum_own_compute(training)["micro_batch_count"]
    return _finite(counts.median()) or 0


def _most(values: pl.Series) -> int:
    most = values.max()
    return most if isinstance(most, int) else 0


def _bound(lanes: pl.DataFrame) -> int | None:
    bound = lanes["bound_ns"].max()
    return int(bound) if isinstance(bound, int) and not lanes["bound_ns"].null_count() else None


def _finite(value: object) -> float | None:
    return value if isinstance(value, float) and value == value else None
