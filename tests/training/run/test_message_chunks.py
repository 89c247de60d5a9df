"""Chunks of messages without names, against the chunks that the simulator knows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fixtures import simulate
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import RUN_STEPS
from nsys_pp.training.run.message_chunks import infer_chunks
from nsys_pp.training.run.routes import Topology
from tests.training.simulated_reports import SimulatedRun, read_simulated_run

SMALL = "--steps 2 --layers 1 --pp 4 --micro-batches 8 --brief-truth --names zero-bubble"


def with_virtual_stages(run: SimulatedRun, *, is_folded: bool) -> pl.DataFrame:
    """Add the virtual stages of the jobs, which the truth does not have."""
    stages = run.lanes.select("lane", "stage")
    jobs = run.jobs.drop("virtual_stage", "backward_virtual_stage").join(stages, on="lane")
    for way in ("", "backward_"):
        chunk = pl.col(f"{way}chunk")
        back = pl.when(chunk == 1).then(7 - pl.col("stage")).otherwise("stage")
        virtual = back if is_folded else chunk * 4 + pl.col("stage")
        jobs = jobs.with_columns(virtual.alias(f"{way}virtual_stage"))
    return jobs


@pytest.mark.parametrize(("schedule", "is_folded"), [("dualpipev", True), ("interleaved", False)])
def test_chunks_follow_from_the_order_of_jobs(tmp_path: Path, schedule: str, is_folded: bool) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), "--schedule", schedule])
    run = read_simulated_run(tmp_path)
    steps = conform(run.steps, RUN_STEPS).sort("step", "lane")
    jobs = with_virtual_stages(run, is_folded=is_folded)
    topology = Topology(stages=4, is_line=False, is_folded=is_folded)
    unknown = run.messages.with_columns(chunk=pl.lit(None, pl.Int64))
    found = infer_chunks(unknown, steps, jobs, run.lanes, topology)
    assert found.drop("chunk").equals(run.messages.drop("chunk"))
    assert found["chunk"].equals(run.messages["chunk"])
    # one message less than jobs: nothing is numbered in its step, lane, verb and direction
    fewer = infer_chunks(unknown.filter(pl.int_range(pl.len()) != 100), steps, jobs, run.lanes, topology)
    assert 8 <= fewer["chunk"].null_count() < 32
    assert (
        fewer.filter(pl.col("chunk").is_not_null()).height
        == len(run.messages) - 1 - fewer["chunk"].null_count()
    )
