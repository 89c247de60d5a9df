"""Ideal steps, against formulas and their definition in plain loops."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import polars as pl
import pytest

from fixtures.program.schedule import virtual_stage
from nsys_pp.frames.training import IDEAL, RUN_JOBS, RUN_STEPS, Training
from nsys_pp.tables.analysis import IDEAL_BUBBLES, ideal_bubbles
from nsys_pp.training.ideal import build_ideal
from nsys_pp.training.schedule import resolve_jobs
from tests.training.scheduled_runs import RUNS, build_scheduled_run, build_unresolved_jobs, simulate_run

Key = tuple[int, int, int, int]  # replica, tensor, virtual stage, micro-batch


def resolved(training: Training) -> Training:
    jobs, _ = resolve_jobs(training.lanes, training.steps, build_unresolved_jobs(training))
    return replace(training, jobs=jobs)


def ideal_of(training: Training) -> tuple[pl.DataFrame, list[str]]:
    return build_ideal(training.lanes, training.steps, training.jobs, training.schedule)


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)]
)
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("groups", [1, 3])
def test_equal_jobs_have_the_bubble_of_the_formula(
    schedule: str, chunks: int, stages: int, groups: int
) -> None:
    micro_batches = groups * stages
    training = resolved(
        build_scheduled_run(schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)
    )
    ideal, notes = ideal_of(training)
    bubbles = ideal_bubbles(ideal)
    assert not notes
    assert len(ideal) == len(training.jobs)
    expected = (stages - 1) / (chunks * micro_batches + stages - 1)
    assert bubbles["bubble_fraction"].to_list() == pytest.approx([expected] * len(training.steps))
    assert bubbles["busy_ns"].to_list() == [2 * 900 * chunks * micro_batches] * len(training.steps)


def expected_ideal(training: Training) -> dict[tuple[int, int], tuple[int, int]]:
    """The definition.

    (lane, place in it) of each job -> when it starts and ends, from the start of its step.
    """
    stages = training.schedule.stage_count
    place = {lane: key for lane, *key in training.lanes.select("lane", "stage", "replica", "tensor").rows()}
    costs: dict[tuple[object, ...], list[int]] = {}
    queues: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for job in training.jobs.sort("lane", "start_ns").iter_rows(named=True):
        key = (place[job["lane"]][0], job["kind"], job["chunk"], job["backward_chunk"])
        costs.setdefault(key, []).append(job["compute_ns"])
        queues.setdefault((job["lane"], job["step"]), []).append(job | {"key": key})
    cost = {key: round(median(values)) for key, values in costs.items()}
    last = stages * training.schedule.chunk_count - 1
    times: dict[tuple[int, int], tuple[int, int]] = {}
    for step in training.steps["step"].unique():
        done: dict[tuple[str, Key], int] = {}
        free = dict.fromkeys(place, 0)
        waiting = {lane: queue[:] for (lane, number), queue in queues.items() if number == step}
        while any(waiting.values()):
            for lane, queue in waiting.items():
                stage, replica, tensor = place[lane]
                while queue:
                    job = queue[0]

                    def virtual(chunk: int, stage: int = stage) -> int:
                        return virtual_stage(training.schedule.name, stage, stages, chunk)

                    needs, makes = [], []
                    kind, number, chunk = job["kind"], job["micro_batch"], job["chunk"]
                    if kind in ("forward", "forward_backward"):
                        at = virtual(chunk)
                        needs += [("F", (replica, tensor, at - 1, number))] if at else []
                        makes.append(("F", (replica, tensor, at, number)))
                    if kind in ("backward", "forward_backward"):
                        if kind == "forward_backward":
                            number, chunk = job["backward_micro_batch"], job["backward_chunk"]
                        at = virtual(chunk)
                        needs.append(("F", (replica, tensor, at, number)))
                        needs += [("B", (replica, tensor, at + 1, number))] if at < last else []
                        makes.append(("B", (replica, tensor, at, number)))
                    if kind == "weight_gradient":
                        needs.append(("B", (replica, tensor, virtual(chunk), number)))
                    if any(need not in done for need in needs):
                        break
                    queue.pop(0)
                    start = max([free[lane], *(done[need] for need in needs)])
                    free[lane] = start + cost[job["key"]]
                    done.update(dict.fromkeys(makes, free[lane]))
                    times[lane, job["job"]] = (start, free[lane])
    return times


@pytest.mark.parametrize("run", RUNS)
def test_jobs_run_again_as_defined(run: str) -> None:
    training = resolved(simulate_run(RUNS[run]))
    ideal, notes = ideal_of(training)
    assert not notes
    zero = dict(training.steps.group_by("step").agg(pl.col("start_ns").min()).iter_rows())
    found = {
        (lane, job): (start - zero[step], end - zero[step])
        for lane, step, job, start, end in ideal.select("lane", "step", "job", "start_ns", "end_ns").rows()
    }
    assert found == expected_ideal(training)
    assert ideal.equals(ideal.sort("lane", "start_ns"))


def test_the_optimizer_comes_last() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=2, steps=1)
    first = training.jobs.filter((pl.col("micro_batch") == 0) & (pl.col("kind") == "forward"))
    update = first.with_columns(
        kind=pl.lit("optimizer", RUN_JOBS["kind"]),
        micro_batch=pl.lit(None, pl.Int64),
        chunk=pl.lit(None, pl.Int64),
        range_id=pl.col("range_id") + 100,
        compute_ns=pl.lit(50, pl.Int64),
    )
    both = resolved(replace(training, jobs=pl.concat([training.jobs, update])))
    ideal = ideal_of(both)[0].join(both.jobs.select("job", "kind"), on="job", maintain_order="left")
    updates = ideal.filter(kind="optimizer")
    assert (updates["end_ns"] - updates["start_ns"]).to_list() == [50, 50]
    assert (
        updates["end_ns"].to_list()
        == ideal.group_by("lane").agg(pl.col("end_ns").max()).sort("lane")["end_ns"].to_list()
    )


def test_steps_of_which_a_job_is_missing_or_unknown_have_no_ideal() -> None:
    training = resolved(build_scheduled_run("1f1b", stages=2, micro_batches=4))
    is_odd = (pl.col("step") == 1) & (pl.col("lane") == 0) & (pl.col("kind") == "backward")
    lost = training.jobs.filter(~(is_odd & (pl.col("micro_batch") == 3))).with_columns(
        job=pl.int_range(pl.len())
    )
    note = "1 steps have no ideal: some of their forwards and backwards are unknown or missing"
    ideal, notes = ideal_of(replace(training, jobs=lost))
    assert ideal["step"].unique().to_list() == [0, 1]
    assert not notes  # nobody waits for a backward of the first stage
    for change in (
        training.jobs.filter((pl.col("step") == 0) | (pl.col("micro_batch") != 3) | (pl.col("lane") == 0)),
        training.jobs.with_columns(virtual_stage=pl.when(~is_odd).then("virtual_stage")),
        training.jobs.with_columns(micro_batch=pl.when(is_odd).then(0).otherwise("micro_batch")),
    ):
        jobs = change.with_columns(job=pl.int_range(pl.len(), dtype=pl.UInt32))
        ideal, notes = ideal_of(replace(training, jobs=jobs))
        assert ideal["step"].unique().to_list() == [0]
        assert notes == [note]


def test_jobs_that_wait_for_each_other_have_no_ideal_and_nobody_hangs() -> None:
    training = resolved(build_scheduled_run("1f1b", stages=2, micro_batches=4))
    is_first = (pl.col("step") == 1) & (pl.col("lane") == 0) & (pl.col("kind") == "forward")
    turned = training.jobs.with_columns(
        compute_start_ns=pl.when(is_first & (pl.col("micro_batch") == 0))
        .then(pl.col("compute_start_ns") + 100_000)
        .otherwise("compute_start_ns")
    )
    ideal, notes = ideal_of(replace(training, jobs=turned))
    assert ideal["step"].unique().to_list() == [0]
    assert notes == ["1 steps have no ideal: their jobs would wait for each other for ever"]


def test_one_replica_that_lacks_jobs_spoils_no_other() -> None:
    training = resolved(build_scheduled_run("1f1b", stages=2, micro_batches=4, replicas=2, steps=1))
    jobs = training.jobs.filter((pl.col("lane") != 2) | (pl.col("kind") == "forward"))
    ideal, notes = ideal_of(
        replace(training, jobs=jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.UInt32)))
    )
    assert ideal["lane"].unique().to_list() == [1, 3]
    assert notes == [
        "the ideal of 1 step is of 1 of 2 pipelines: some forwards and backwards of the others are unknown "
        "or missing"
    ]


def test_the_ideal_of_nothing_is_nothing() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=2)
    ideal, notes = build_ideal(training.lanes, RUN_STEPS.to_frame(), RUN_JOBS.to_frame(), training.schedule)
    assert ideal.equals(IDEAL.to_frame())
    assert ideal_bubbles(ideal).equals(IDEAL_BUBBLES.to_frame())
    assert not notes
