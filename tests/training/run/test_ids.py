from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fixtures.program.schedule import chunks_of, virtual_stage
from nsys_pp.frames.choices import SCHEDULES
from nsys_pp.frames.training import LANES, RUN_JOBS, RUN_STEPS, Training
from nsys_pp.training.schedule import _copy_backward_ids, resolve_jobs
from tests.training.scheduled_runs import (
    IDS,
    JOBS_BY_LANE,
    RUNS,
    build_scheduled_run,
    build_unresolved_jobs,
    fill_columns,
    list_alternatives,
    simulate_run,
)

CHUNKS = ("chunk", "backward_chunk")
NUMBERS = ("micro_batch", "backward_micro_batch")
MSPROF = (*CHUNKS, "backward_micro_batch")  # names say the micro-batch of the forward
TIMES = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")


def resolve(
    training: Training, *, hidden: tuple[str, ...] = (), schedule_name: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    return resolve_jobs(
        training.lanes,
        training.steps,
        build_unresolved_jobs(training, hidden=hidden),
        schedule_name=schedule_name,
    )


def raw(rows: list[dict[str, object]]) -> pl.DataFrame:
    return fill_columns(pl.DataFrame(rows, infer_schema_length=None), JOBS_BY_LANE)


@pytest.mark.parametrize(
    "hidden", [(), IDS, CHUNKS, NUMBERS, MSPROF], ids=["named", "all", "chunks", "numbers", "msprof"]
)
@pytest.mark.parametrize("run", RUNS)
def test_ids_are_those_of_the_simulator(run: str, hidden: tuple[str, ...]) -> None:
    training = simulate_run(RUNS[run])
    jobs, notes = resolve(training, hidden=hidden)
    assert jobs.select(IDS).equals(training.jobs.select(IDS))
    stages = training.schedule.stage_count
    placed = jobs.join(training.lanes.select("lane", "stage"), on="lane", maintain_order="left")
    for virtual, chunk in (("virtual_stage", "chunk"), ("backward_virtual_stage", "backward_chunk")):
        expected = [
            None if chunk is None else virtual_stage(training.schedule.name, stage, stages, chunk)
            for stage, chunk in placed.select("stage", chunk).iter_rows()
        ]
        assert jobs[virtual].to_list() == expected
    several = training.schedule.chunk_count > 1
    is_inferred = "micro_batch" in hidden or (several and "chunk" in hidden)
    assert jobs["is_inferred"].to_list() == [is_inferred] * len(jobs)
    assert jobs["confidence"].to_list() == [1.0 if is_inferred else None] * len(jobs)
    assert [note.startswith("the micro-batches or chunks") and "inferred" in note for note in notes] == [
        True
    ] * is_inferred


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(1, 6),
    st.integers(1, 24),
    st.integers(2, 4),
    st.sampled_from([IDS, CHUNKS, MSPROF]),
)
@example("interleaved", 6, 15, 4, IDS)  # in the order of 12 micro-batches in 5 chunks
@example("interleaved", 6, 12, 5, IDS)
def test_ids_are_right_or_refused(
    schedule: str, stages: int, micro_batches: int, chunks: int, hidden: tuple[str, ...]
) -> None:
    chunks = chunks_of(schedule, chunks)
    assume(schedule != "dualpipev" or micro_batches >= 2 * stages)
    assume(chunks == 1 or (micro_batches >= stages and stages > 1))
    training = build_scheduled_run(
        schedule, stages=stages, micro_batches=micro_batches, chunks=chunks, steps=1
    )
    jobs, notes = resolve(training, hidden=hidden)
    is_ambiguous = "micro_batch" in hidden and bool(
        list_alternatives(schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)
    )
    may_refuse = micro_batches < 3 or stages == 1 or is_ambiguous
    assert may_refuse or not any("unknown" in note for note in notes)
    right = training.jobs
    if any("unknown" in note for note in notes):
        assert jobs["is_inferred"].sum() == 0
        right = right.with_columns(pl.when(jobs[name].is_not_null()).then(name).alias(name) for name in IDS)
    assert jobs.select(IDS).equals(right.select(IDS))


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(0, 3),
    st.integers(0, 30),
    st.booleans(),
    st.booleans(),
    st.sampled_from([IDS, CHUNKS]),
)
def test_ids_of_a_cut_lane_are_right_or_refused(
    schedule: str, lane: int, lost: int, is_end_lost: bool, is_told: bool, hidden: tuple[str, ...]
) -> None:
    """The first or last jobs of a lane in a step are lost, whether or not the step is known to be cut."""
    training = build_scheduled_run(schedule, stages=4, micro_batches=8, chunks=chunks_of(schedule, 2))
    here = (pl.col("lane") == lane) & (pl.col("step") == 1)
    place = pl.int_range(pl.len()).over("lane", "step")
    is_lost = place >= pl.len().over("lane", "step") - lost if is_end_lost else place < lost
    cut = training.jobs.filter(~(here & is_lost))
    steps = training.steps.with_columns(is_partial=here & is_told)
    jobs, _ = resolve(replace(training, jobs=cut, steps=steps), hidden=hidden)
    right = [pl.when(jobs[name].is_not_null()).then(name).alias(name) for name in IDS]
    assert jobs.select(IDS).equals(cut.select(right))
    if is_told:
        others = jobs.filter(~here)
        assert others.select(IDS).equals(cut.filter(~here).select(IDS))


@pytest.mark.parametrize("run", ["interleaved", "interleaved in 3", "dualpipev"])
def test_chunks_follow_from_virtual_stages(run: str) -> None:
    training = simulate_run(RUNS[run])
    known, _ = resolve(training)
    named = replace(training, jobs=known)
    jobs, notes = resolve(named, hidden=CHUNKS)
    assert jobs.equals(known)
    assert not notes


def test_without_stages_one_chunk_is_still_numbered() -> None:
    training = build_scheduled_run("1f1b", stages=1, micro_batches=8)
    lanes = training.lanes.with_columns(stage=pl.lit(None, pl.Int64))
    jobs, _ = resolve(replace(training, lanes=lanes), hidden=IDS)
    assert jobs.select(IDS).equals(training.jobs.select(IDS))
    assert jobs["virtual_stage"].null_count() == len(jobs)


def test_forwards_before_all_backwards_are_not_numbered_without_stages() -> None:
    """So does the first stage of an interleaved schedule."""
    training = build_scheduled_run("interleaved", stages=2, micro_batches=2, chunks=2)
    alone = training.lanes.head(1).with_columns(stage=pl.lit(None, pl.Int64))
    one = replace(
        training, lanes=alone, jobs=training.jobs.filter(lane=0), steps=training.steps.filter(lane=0)
    )
    jobs, notes = resolve(one, hidden=IDS)
    assert jobs["micro_batch"].null_count() == len(jobs) == 16
    assert "unknown" in notes[0]


def test_a_cut_step_is_numbered_only_if_all_of_it_is_there() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=4)
    steps = training.steps.with_columns(is_partial=pl.col("step") == 1)
    whole, _ = resolve(replace(training, steps=steps), hidden=IDS)
    assert whole["micro_batch"].null_count() == 0
    lost = training.jobs.filter(
        (pl.col("step") == 0) | (pl.col("lane") == 1) | (pl.col("start_ns") > 1_000_000)
    )
    cut, notes = resolve(replace(training, steps=steps, jobs=lost), hidden=IDS)
    unknown = cut.filter(pl.col("micro_batch").is_null())
    assert unknown.select("lane", "step").unique().rows() == [(0, 1)]
    assert len(unknown) == 7
    assert notes[1] == (
        "the micro-batches or chunks of 7 jobs are unknown: their steps are cut, or not in the order of 1f1b"
    )


def test_steps_that_are_all_cut_are_not_numbered() -> None:
    """As many jobs of each may be lost: what is left is in the order of fewer micro-batches."""
    training = build_scheduled_run("1f1b", stages=1, micro_batches=6)
    steps = training.steps.with_columns(is_partial=pl.lit(value=True))
    left = training.jobs.filter(pl.col("micro_batch") >= 2)
    jobs, notes = resolve(replace(training, steps=steps, jobs=left), hidden=IDS)
    assert jobs["micro_batch"].null_count() == len(jobs) > 0
    assert any("are unknown" in note for note in notes)


def test_an_order_that_is_no_schedule_is_not_numbered() -> None:
    training = build_scheduled_run("interleaved", stages=4, micro_batches=8, chunks=2)
    shuffled = training.jobs.with_columns(pl.col(TIMES).shuffle(seed=1).over("lane", "step"))
    jobs, notes = resolve(replace(training, jobs=shuffled), hidden=IDS)
    assert jobs["micro_batch"].null_count() == len(jobs)
    assert jobs["is_inferred"].sum() == 0
    assert "only" in notes[0]


def test_what_names_say_stays_even_where_no_schedule_has_it() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=8)
    shuffled = training.jobs.with_columns(pl.col(TIMES).shuffle(seed=1).over("lane", "step"))
    right = shuffled.sort("lane", "start_ns")
    jobs, notes = resolve(replace(training, jobs=shuffled), hidden=CHUNKS)
    assert jobs["micro_batch"].equals(right["micro_batch"])
    assert jobs["chunk"].to_list() == [0] * len(jobs)
    assert not notes


def test_confidence_is_the_share_of_jobs_in_their_places() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=30, steps=1)
    late = (pl.col("lane") == 1) & (pl.col("kind") == "forward") & (pl.col("micro_batch") == 7)
    moved = training.jobs.with_columns(
        pl.when(late).then(pl.col(name) + 1500).otherwise(name).alias(name) for name in TIMES
    )
    jobs, _ = resolve(replace(training, jobs=moved), hidden=IDS)
    assert jobs.select(IDS).equals(moved.sort("lane", "start_ns").select(IDS))
    assert dict(jobs.group_by("lane").agg(pl.col("confidence").mean()).iter_rows()) == {
        0: 1.0,
        1: pytest.approx(58 / 60),
    }


def test_a_given_schedule_says_how_chunks_are_numbered() -> None:
    training = build_scheduled_run("interleaved", stages=2, micro_batches=4, chunks=2)
    jobs, notes = resolve(training, hidden=IDS, schedule_name="gpipe")
    assert jobs["micro_batch"].null_count() == len(jobs)
    assert "gpipe" in notes[0]
    jobs, _ = resolve(training, hidden=IDS, schedule_name="interleaved")
    assert jobs.select(IDS).equals(training.jobs.select(IDS))


def test_numbers_that_count_on_from_step_to_step_are_kept() -> None:
    training = build_scheduled_run("interleaved", stages=2, micro_batches=4, chunks=2)
    counted = training.jobs.with_columns(pl.col("micro_batch") + 4 * pl.col("step"))
    jobs, _ = resolve(replace(training, jobs=counted), hidden=CHUNKS)
    assert jobs.select(IDS).equals(counted.select(IDS))


def test_jobs_within_others_are_about_the_same() -> None:
    """A forward and a backward at once, its two halves, and the recomputation within the second half."""
    training = build_scheduled_run("1f1b", stages=1, micro_batches=1, steps=1)
    row = {"lane": 0, "step": 0, "start_ns": 5, "end_ns": 9}
    rows = [
        {
            "kind": "forward_backward",
            "range_id": 1,
            "micro_batch": 3,
            "chunk": 1,
            "backward_micro_batch": 2,
            "backward_chunk": 0,
        },
        {"kind": "forward", "range_id": 2, "outer_id": 1},
        {"kind": "backward", "range_id": 3, "outer_id": 1},
        {"kind": "recompute", "range_id": 4, "outer_id": 3},
        {"kind": "send", "range_id": 5, "outer_id": 3},
    ]
    jobs, _ = resolve_jobs(training.lanes, training.steps, raw([row | each for each in rows]))
    assert jobs.select("outer", "micro_batch", "chunk").rows() == [
        (None, 3, 1), (0, 3, 1), (0, 2, 0), (2, 2, 0), (2, None, None)
    ]  # fmt: skip


def test_recomputation_that_stands_by_itself_is_about_the_next_backward() -> None:
    training = build_scheduled_run("gpipe", stages=2, micro_batches=2, steps=1)
    again = training.jobs.filter(kind="backward").with_columns(
        *(pl.col(name) - 50 for name in TIMES),
        *(pl.lit(None, pl.Int64).alias(name) for name in IDS),
        kind=pl.lit("recompute", RUN_JOBS["kind"]),
        range_id=pl.col("range_id") + 100,
    )
    both = pl.concat([training.jobs, again])
    for hidden in ((), IDS):
        jobs, _ = resolve(replace(training, jobs=both), hidden=hidden)
        assert jobs.filter(lane=0).select("kind", "micro_batch").rows() == [
            ("forward", 0), ("forward", 1), ("recompute", 0), ("backward", 0), ("recompute", 1), ("backward", 1)
        ]  # fmt: skip


def test_jobs_that_launched_nothing_are_left_out_and_the_others_numbered_by_lane_and_time() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=2, steps=1)
    rows = [
        {"lane": 1, "kind": "optimizer", "range_id": 1, "start_ns": 7, "end_ns": 8},
        {"lane": 0, "kind": "data", "range_id": 1, "start_ns": 9, "end_ns": 10},
        {"lane": 0, "kind": "data", "range_id": 2, "start_ns": None, "end_ns": None},
        {"lane": 0, "kind": "send", "range_id": 3, "start_ns": 3, "end_ns": 4, "outer_id": 1},
    ]
    jobs, notes = resolve_jobs(training.lanes, training.steps, raw(rows))
    assert jobs.select("lane", "job", "outer", "kind").rows() == [
        (0, 0, 1, "send"), (0, 1, None, "data"), (1, 2, None, "optimizer")
    ]  # fmt: skip
    assert not notes


def test_nothing_comes_of_nothing() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=2)
    jobs, notes = resolve_jobs(training.lanes, RUN_STEPS.to_frame(), JOBS_BY_LANE.to_frame())
    assert jobs.equals(RUN_JOBS.to_frame())
    assert not notes
    jobs, notes = resolve_jobs(LANES.to_frame(), RUN_STEPS.to_frame(), JOBS_BY_LANE.to_frame())
    assert jobs.equals(RUN_JOBS.to_frame())
    assert not notes


def test_recomputation_before_a_backward_without_a_number_has_none() -> None:
    """What the next but one backward is about does not matter."""
    kinds = ["recompute", "backward", "recompute", "backward"]
    jobs = pl.DataFrame(
        {
            "lane": [0] * 4,
            "step": [0] * 4,
            "kind": kinds,
            "micro_batch": [None, None, None, 3],
            "chunk": [None, None, None, 0],
            "backward_micro_batch": [None] * 4,
            "backward_chunk": [None] * 4,
        },
        schema_overrides={"backward_micro_batch": pl.Int64, "backward_chunk": pl.Int64},
    )
    found = _copy_backward_ids(jobs)
    assert found["micro_batch"].to_list() == [None, None, 3, 3]
    assert found["chunk"].to_list() == [None, None, 0, 0]
