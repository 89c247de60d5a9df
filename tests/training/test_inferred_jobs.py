"""Jobs that messages imply, against the simulator's."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fixtures import simulate
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import COMPUTE_SEGMENTS, PAUSE_NS, RUN_JOBS, RUN_STEPS, TRANSFERS
from nsys_pp.training.inferred_jobs import reconstruct_jobs
from nsys_pp.training.transfers import pair_messages
from tests.training.simulated_reports import SimulatedRun, read_simulated_run

SMALL = "--steps 2 --layers 1 --pp 4 --micro-batches 8 --brief-truth"


def reconstruct(run: SimulatedRun) -> tuple[pl.DataFrame, str]:
    """Reconstruct jobs from messages of which no name tells anything, only NCCL."""
    nothing = [
        pl.lit(None, run.messages.schema[name]).alias(name) for name in ("direction", "micro_batch", "chunk")
    ]
    steps = conform(run.steps, RUN_STEPS).sort("step", "lane")
    transfers, _ = pair_messages(
        lanes=run.lanes,
        messages=run.messages.with_columns(nothing),
        steps=steps,
        jobs=RUN_JOBS.to_frame(),
    )
    return reconstruct_jobs(
        lanes=run.lanes, steps=steps, compute_segments=run.compute_segments, transfers=transfers
    )


@pytest.mark.parametrize("options", ["", "--free-running", "--stall 10=15", "--grouped-messages --recompute"])
def test_jobs_of_1f1b_are_found_with_their_micro_batches(tmp_path: Path, options: str) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), *options.split()])
    run = read_simulated_run(tmp_path)
    jobs, reason = reconstruct(run)
    assert reason == ""
    assert jobs.schema == RUN_JOBS
    assert jobs["is_inferred"].all()
    plain = jobs.filter(pl.col("kind").is_in(["forward", "backward"]))
    key = ["lane", "step", "kind", "micro_batch"]
    found = plain.join(run.jobs, on=key, suffix="_true")
    assert len(found) == len(plain) == 4 * 2 * 2 + 2 * 2 * 16
    # the last backwards of the first stage are told by what it receives, which may be early
    sure = found.filter(pl.col("confidence") > 0.5)
    assert len(sure) == len(found) - 8
    assert ((sure["start_ns"] - sure["start_ns_true"]).abs() <= PAUSE_NS).all()
    assert (sure["end_ns"] == sure["end_ns_true"]).all()


def test_where_nothing_lies_between_a_forward_and_a_backward_they_are_one_job(tmp_path: Path) -> None:
    simulate.main([str(tmp_path), *SMALL.split()])
    run = read_simulated_run(tmp_path)
    both = reconstruct(run)[0].filter(pl.col("kind") == "forward_backward")
    pairs = both.group_by("lane", maintain_order=True).agg(
        pl.struct("micro_batch", "backward_micro_batch").unique().sort()
    )
    assert pairs.rows() == [
        (0, [{"micro_batch": n + 4, "backward_micro_batch": n} for n in range(4)]),
        (3, [{"micro_batch": n, "backward_micro_batch": n} for n in range(8)]),
    ]
    for side, kind in (("micro_batch", "forward"), ("backward_micro_batch", "backward")):
        true = run.jobs.filter(pl.col("kind") == kind).select(
            "lane", "step", "micro_batch", "start_ns", "end_ns"
        )
        inside = both.join(
            true, left_on=["lane", "step", side], right_on=["lane", "step", "micro_batch"], suffix="_true"
        )
        assert len(inside) == len(both)
        assert (inside["start_ns"] <= inside["start_ns_true"]).all()
        assert (inside["end_ns"] >= inside["end_ns_true"]).all()


@pytest.mark.parametrize(
    ("schedule", "reason"),
    {
        "gpipe": "the first stage does not follow 1F1B",
        "zb-h1": "stages compute between a job and the message that the next one waits for",
        "interleaved": "the direction of some messages is unknown",
        "dualpipev": "the first stage does not follow 1F1B",
    }.items(),
)
def test_other_schedules_are_refused(tmp_path: Path, schedule: str, reason: str) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), "--schedule", schedule])
    jobs, why = reconstruct(read_simulated_run(tmp_path))
    assert (why, len(jobs)) == (reason, 0)


def test_without_stages_nothing_is_made(tmp_path: Path) -> None:
    lanes = pl.DataFrame({"lane": [0], "stage": [None]}, schema={"lane": pl.UInt32, "stage": pl.Int64})
    compute_segments = COMPUTE_SEGMENTS.to_frame().with_columns(lane=pl.lit(0, pl.UInt32))
    jobs, why = reconstruct_jobs(
        lanes=lanes,
        steps=RUN_STEPS.to_frame(),
        compute_segments=compute_segments,
        transfers=TRANSFERS.to_frame(),
    )
    assert (why, len(jobs)) == ("the stages of the ranks are not known", 0)
