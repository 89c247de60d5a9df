"""Ids, schedules and labels of jobs, against the simulator's schedules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fixtures.program.schedule import SCHEDULES as SIMULATED
from fixtures.program.schedule import chunks_of, virtual_stage
from nsys_pp.frames.training import (
    LANE_COMPUTE_SEGMENTS,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    SCHEDULED_KINDS,
    Schedule,
    Training,
)
from nsys_pp.options import SCHEDULES
from nsys_pp.training.orders import order_jobs
from nsys_pp.training.schedule import (
    label_jobs,
    measure_unexplained,
    recognise_schedule,
    resolve_jobs,
)
from tests.commands.whole import run
from tests.training.dualpipev_labels import LOGITS, label_jobs_of_stage
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


def test_steps_that_are_all_cut_are_not_numbered() -> None:
    """As many jobs of each may be lost: what is left is in the order of fewer micro-batches."""
    training = build_scheduled_run("1f1b", stages=1, micro_batches=6)
    steps = training.steps.with_columns(is_partial=pl.lit(value=True))
    left = training.jobs.filter(pl.col("micro_batch") >= 2)
    jobs, notes = resolve(replace(training, steps=steps, jobs=left), hidden=IDS)
    assert jobs["micro_batch"].null_count() == len(jobs) > 0
    assert any("are unknown" in note for note in notes)


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
            ("forward", 0), ("forward", 1), ("recompute", 0),
            ("backward", 0), ("recompute", 1), ("backward", 1),
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


def recognise(
    training: Training, *, hidden: tuple[str, ...] = (), schedule_name: str | None = None
) -> Schedule:
    jobs, _ = resolve_jobs(training.lanes, training.steps, build_unresolved_jobs(training, hidden=hidden))
    return recognise_schedule(training.lanes, training.steps, jobs, schedule_name=schedule_name)


@st.composite
def shapes(
    draw: st.DrawFn, *, least_stages: int = 1, least_micro_batches: int = 0
) -> tuple[str, int, int, int]:
    """Schedule, stages, micro-batches, chunks."""
    schedule = draw(st.sampled_from(SCHEDULES))
    stages = draw(st.integers(least_stages, 8))
    least = 2 * stages if schedule == "dualpipev" else least_micro_batches
    return schedule, stages, draw(st.integers(least, 40)), chunks_of(schedule, draw(st.integers(2, 4)))


@pytest.mark.parametrize("given_name", [None, "1f1b", "interleaved"])
@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (("backward",), "there are no forwards within steps"),
        (("forward",), "there are no backwards within steps"),
        (("optimizer",), "there are no forwards and backwards within steps"),
    ],
)
def test_without_forwards_or_backwards_no_schedule_is_known(
    kept: tuple[str, ...], reason: str, given_name: str | None
) -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=4)
    some = replace(training, jobs=training.jobs.filter(pl.col("kind").cast(pl.String).is_in(kept)))
    jobs, _ = resolve_jobs(
        some.lanes, some.steps, build_unresolved_jobs(some, hidden=IDS), schedule_name=given_name
    )
    found = recognise_schedule(some.lanes, some.steps, jobs, schedule_name=given_name)
    if given_name is None:
        assert (found.name, found.source, found.reason) == ("unknown", "", reason)
    assert found.name == (given_name or "unknown")


@settings(deadline=None, max_examples=50)
@given(shapes())
def test_orders_are_those_of_the_simulator(shape: tuple[str, int, int, int]) -> None:
    schedule, stages, micro_batches, chunks = shape
    for stage in range(stages):
        order = order_jobs(schedule, stage=stage, stages=stages, micro_batches=micro_batches, chunks=chunks)
        found = [
            (SCHEDULED_KINDS[kind], *ids)
            for kind, *ids in zip(*(getattr(order, name).tolist() for name in ("kind", *IDS)), strict=True)
        ]
        assert found == [
            (
                {"weight": "weight_gradient"}.get(job.kind, job.kind),
                job.micro_batch,
                job.chunk,
                job.partner.micro_batch if job.partner else -1,
                job.partner.chunk if job.partner else -1,
            )
            for job in SIMULATED[schedule](stage, stages, micro_batches, chunks)
        ]


def test_unknown_names_of_schedules_are_refused() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=4)
    with pytest.raises(ValueError, match="unknown schedule '1f2b'; expected one of gpipe, "):
        order_jobs("1f2b", stage=0, stages=1, micro_batches=1)
    with pytest.raises(ValueError, match="unknown schedule '1f2b'; expected one of gpipe, "):
        recognise(training, schedule_name="1f2b")


@pytest.mark.parametrize("hidden", [(), IDS], ids=["named", "unnamed"])
@pytest.mark.parametrize("run", RUNS)
def test_every_simulated_schedule_is_recognised(run: str, hidden: tuple[str, ...]) -> None:
    training = simulate_run(RUNS[run])
    found = recognise(training, hidden=hidden)
    assert (found.name, found.source, found.reason) == (training.schedule.name, "recognised", "")
    assert found.agreement == 1
    assert found.stage_count == training.schedule.stage_count
    assert found.micro_batch_count == training.schedule.micro_batch_count
    assert found.chunk_count == training.schedule.chunk_count


@settings(deadline=None, max_examples=50)
@given(shapes(least_stages=2, least_micro_batches=1), st.booleans())
def test_no_schedule_is_taken_for_another(shape: tuple[str, int, int, int], are_named: bool) -> None:
    """It is unknown where two are one and the same, as with one micro-batch."""
    schedule, stages, micro_batches, chunks = shape
    assume(are_named or chunks == 1 or micro_batches >= stages)  # Megatron-LM interleaves no fewer
    training = build_scheduled_run(
        schedule, stages=stages, micro_batches=micro_batches, chunks=chunks, steps=1
    )
    found = recognise(training, hidden=() if are_named else IDS)
    allowed = {schedule} if chunks > 1 or micro_batches > 1 else {schedule, "unknown"}
    assert found.name in allowed
    assert bool(found.reason) == (found.name == "unknown")
    if found.name == schedule:
        assert (found.micro_batch_count, found.chunk_count) in [(micro_batches, chunks), (0, 0)]


@pytest.mark.parametrize(("micro_batches", "chunks"), [(15, 4), (12, 5)])
def test_counts_are_unknown_where_two_numbers_of_chunks_have_the_same_order(
    micro_batches: int, chunks: int
) -> None:
    training = build_scheduled_run(
        "interleaved", stages=6, micro_batches=micro_batches, chunks=chunks, steps=1
    )
    assert list_alternatives("interleaved", stages=6, micro_batches=micro_batches, chunks=chunks)
    unnamed = recognise(training, hidden=IDS)
    assert (unnamed.name, unnamed.micro_batch_count, unnamed.chunk_count) == ("interleaved", 0, 0)
    named = recognise(training)
    assert (named.name, named.micro_batch_count, named.chunk_count) == ("interleaved", micro_batches, chunks)


def test_an_order_that_is_no_schedule_is_unknown() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=16)
    shuffled = training.jobs.with_columns(
        pl.col("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
        .shuffle(seed=1)
        .over("lane", "step")
    )
    found = recognise(replace(training, jobs=shuffled))
    assert (found.name, found.source) == ("unknown", "")
    assert found.agreement < 0.8
    assert "only" in found.reason


def test_a_longer_warm_up_is_no_1f1b_however_many_micro_batches_agree() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=400, steps=1)
    placed = training.jobs.sort("lane", "start_ns").with_columns(place=pl.int_range(pl.len()).over("lane"))
    first = pl.col("place").filter(pl.col("kind") == "backward").min().over("lane")
    later = pl.col("place") - first
    moved = pl.when(later == 0).then(1000).when(later == 1).then(-1000).otherwise(0)
    times = ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
    found = recognise(replace(training, jobs=placed.with_columns(pl.col(name) + moved for name in times)))
    assert found.agreement > 0.95
    assert found.name == "unknown"
    assert "another warm-up" in found.reason


def test_a_schedule_that_is_given_is_believed_and_its_agreement_told() -> None:
    training = build_scheduled_run("gpipe", stages=4, micro_batches=8)
    found = recognise(training, schedule_name="1f1b")
    assert (found.name, found.source, found.reason) == ("1f1b", "given", "")
    assert found.agreement < 0.8


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "reason"),
    [
        ("1f1b", 1, 8, "there is one stage: no pipeline"),
        ("1f1b", 4, 1, "the jobs would be in this order under 1f1b and gpipe alike"),
        ("1f1b", 2, 2, ""),
    ],
)
def test_why_nothing_is_recognised(schedule: str, stages: int, micro_batches: int, reason: str) -> None:
    training = build_scheduled_run(schedule, stages=stages, micro_batches=micro_batches)
    assert recognise(training).reason == reason


def test_without_stages_or_whole_steps_or_jobs_nothing_is_recognised() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=8)
    no_stages = training.lanes.with_columns(stage=pl.lit(None, pl.Int64))
    cut = training.steps.with_columns(is_partial=pl.lit(True))
    jobs = training.jobs
    assert recognise_schedule(no_stages, training.steps, jobs).reason == "the stages of the GPUs are unknown"
    assert recognise_schedule(training.lanes, cut, jobs).reason == "no step is complete"
    nothing = recognise_schedule(training.lanes, RUN_STEPS.to_frame(), RUN_JOBS.to_frame())
    assert nothing.reason == "there are no forwards and backwards within steps"
    assert (nothing.name, nothing.agreement) == ("unknown", 0)


@pytest.mark.parametrize("size", [4, 6, 7, 12])
def test_megatron_with_groups_of_another_size_is_interleaved(size: int) -> None:
    usual = build_scheduled_run("interleaved", stages=4, micro_batches=12, chunks=2, steps=1)
    jobs = usual.jobs.sort("lane", "start_ns")
    kinds, numbers, chunks = [], [], []
    for stage in range(4):
        order = order_jobs("interleaved", stage=stage, stages=4, micro_batches=12, chunks=2, group=size)
        kinds += [SCHEDULED_KINDS[kind] for kind in order.kind]
        numbers += order.micro_batch.tolist()
        chunks += order.chunk.tolist()
    grouped = jobs.with_columns(
        kind=pl.Series(kinds, dtype=RUN_JOBS["kind"]), micro_batch=pl.Series(numbers), chunk=pl.Series(chunks)
    )
    for hidden in ((), IDS):
        found = recognise(replace(usual, jobs=grouped), hidden=hidden)
        assert (found.name, found.micro_batch_count, found.chunk_count) == ("interleaved", 12, 2)


def test_steps_that_are_cut_do_not_count() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=8)
    cut = training.jobs.filter((pl.col("step") == 0) | (pl.col("start_ns") < 1_009_000))
    steps = training.steps.with_columns(is_partial=pl.col("step") == 1)
    found = recognise(replace(training, jobs=cut, steps=steps))
    assert (found.name, found.agreement, found.micro_batch_count) == ("1f1b", 1, 8)


def test_steps_that_only_evaluate_do_not_count() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=8)
    evaluated = training.jobs.filter((pl.col("step") == 0) | (pl.col("kind") == "forward"))
    assert recognise(replace(training, jobs=evaluated)).agreement == 1


def test_labels_tell_halves_of_backwards_and_other_jobs() -> None:
    training = build_scheduled_run("zb-h1", stages=2, micro_batches=2, steps=1)
    labelled = label_jobs(training.jobs, training.lanes, training.schedule)
    assert labelled.filter(lane=0)["label"].to_list() == ["0", "1", "0b", "0w", "1b", "1w"]
    others = training.jobs.head(5).with_columns(
        kind=pl.Series(["optimizer", "receive", "recompute", "send", "forward"], dtype=RUN_JOBS["kind"]),
        micro_batch=pl.Series([None, None, 3, 4, None], dtype=pl.Int64),
    )
    labels = label_jobs(others, training.lanes, training.schedule)["label"]
    assert labels.to_list() == ["opt", "recv", "3r", "send 4", "F"]


KNOWN = {  # (stage, stages, micro-batches) -> labels by phase, from running msprof-analyze
    (0, 2, 4): "0 1/2 4/logits 4b 4w 5/logits 3F+5B 6F+0B/logits 6B 7F+1B/logits 7B/2B 3B",
    (1, 2, 4): "/0 4 1 5//2F 4B 6F+0B 3F+5B 7F+1B//6B 2B/7B 3B",
    (0, 4, 10): (
        "0 1 2 3 4 5/6 10/logits 10b 10w 11 logits 11b 11w 12 logits 12b 12w 13"
        "/logits 7F+13B 14F+0B logits 8F+14B 15F+1B logits 9F+15B 16F+2B"
        "/logits 16B 17F+3B logits 17B 18F+4B logits 18B 19F+5B/logits 19B/6B 7B 8B 9B"
    ),
    (3, 4, 10): (
        "/0 10 1 11 2 12 3 13//4F 10B 14F+0B 5F+11B 15F+1B 6F+12B 16F+2B 7F+13B 17F+3B 8F+14B 18F+4B"
        " 9F+15B 19F+5B//16B 6B 17B 7B/18B 8B 19B 9B"
    ),
}


def by_phase(places: list[tuple[str, int]]) -> str:
    return "/".join(" ".join(label for label, phase in places if phase == wanted) for wanted in range(7))


@pytest.mark.parametrize("shape", KNOWN)
def test_labels_are_those_of_msprof_analyze(shape: tuple[int, int, int]) -> None:
    places = label_jobs_of_stage(*shape, has_logits=True)
    assert by_phase(places) == KNOWN[shape]
    assert [phase for _, phase in places] == sorted(phase for _, phase in places)
    without = [place for place in places if place[0] != LOGITS]
    assert label_jobs_of_stage(*shape) == without


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 10), (3, 11)])
def test_jobs_are_labelled_as_their_places(stages: int, micro_batches: int) -> None:
    training = build_scheduled_run("dualpipev", stages=stages, micro_batches=micro_batches, chunks=2)
    labelled = label_jobs(training.jobs, training.lanes, training.schedule)
    for (lane, _), jobs in labelled.group_by("lane", "step"):
        assert jobs.sort("start_ns").select("label", "phase").rows() == label_jobs_of_stage(
            lane, stages, micro_batches
        )


def test_jobs_of_a_simulated_run_are_labelled_as_their_places() -> None:
    training = simulate_run(RUNS["dualpipev"])
    labelled = label_jobs(training.jobs, training.lanes, training.schedule)
    for (lane, _), jobs in labelled.group_by("lane", "step"):
        assert jobs.sort("start_ns").select("label", "phase").rows() == label_jobs_of_stage(lane, 4, 10)


def test_a_lane_that_lacks_a_job_has_labels_but_no_phases() -> None:
    training = build_scheduled_run("dualpipev", stages=2, micro_batches=4, chunks=2, steps=1)
    jobs = training.jobs.filter(~((pl.col("lane") == 0) & (pl.col("start_ns") == 3000)))
    labelled = label_jobs(jobs.with_columns(job=pl.int_range(pl.len())), training.lanes, training.schedule)
    phases = dict(labelled.group_by("lane").agg(pl.col("phase").null_count()).iter_rows())
    assert phases == {0: 13, 1: 0}
    assert labelled["label"].to_list()[:4] == ["0", "1", "2", "4b"]


_KINDS = ("forward", "backward", "optimizer", "other")


def measure_by_loops(jobs: pl.DataFrame, segments: pl.DataFrame) -> float | None:
    computed = [
        (row["lane"], at) for row in segments.rows(named=True) for at in range(row["start_ns"], row["end_ns"])
    ]
    rows = jobs.rows(named=True)
    inside, explained = 0, 0
    for lane, at in computed:
        own = [row for row in rows if row["lane"] == lane]
        for step in {row["step"] for row in own}:
            scheduled = [row for row in own if row["step"] == step and row["kind"] in ("forward", "backward")]
            if not scheduled:
                continue
            last = max(row["compute_end_ns"] for row in scheduled)
            updates = [
                row["compute_start_ns"]
                for row in own
                if row["step"] == step and row["kind"] == "optimizer" and row["compute_start_ns"] >= last
            ]
            if min(row["compute_start_ns"] for row in scheduled) <= at < min(updates, default=last):
                inside += 1
                explained += any(row["compute_start_ns"] <= at < row["compute_end_ns"] for row in own)
    return (inside - explained) / inside if inside else None


@pytest.mark.parametrize("seed", range(40))
def test_the_share_is_its_definition(seed: int) -> None:
    """Steps follow each other on each lane; jobs may overlap, and lie anywhere beside the segments."""
    rng = np.random.default_rng(seed)
    jobs, segments = [], []
    for lane in range(int(rng.integers(1, 4))):
        for step in range(int(rng.integers(0, 3))):
            for _ in range(int(rng.integers(0, 6))):
                start = step * 40 + int(rng.integers(0, 30))
                jobs.append(
                    {
                        "lane": lane,
                        "step": step,
                        "kind": _KINDS[int(rng.integers(0, 4))],
                        "compute_start_ns": start,
                        "compute_end_ns": start + int(rng.integers(1, 9)),
                    }
                )
        edges = np.sort(rng.choice(90, 2 * int(rng.integers(0, 12)), replace=False)).tolist()
        segments += [
            {"lane": lane, "start_ns": start, "end_ns": end}
            for start, end in zip(edges[::2], edges[1::2], strict=True)
        ]
    both = [
        fill_columns(pl.DataFrame(rows, schema=columns), schema)
        for rows, columns, schema in (
            (jobs, ["lane", "step", "kind", "compute_start_ns", "compute_end_ns"], RUN_JOBS),
            (segments, ["lane", "start_ns", "end_ns"], LANE_COMPUTE_SEGMENTS),
        )
    ]
    expected, measured = measure_by_loops(*both), measure_unexplained(*both)
    assert measured == (None if expected is None else pytest.approx(expected))


@pytest.mark.few(1)
@pytest.mark.parametrize("micro_batches", [4, 8])
def test_weight_gradients_without_ranges_make_the_schedule_uncertain(
    micro_batches: int, tmp_path: Path
) -> None:
    options = f"--schedule zb-h1 --steps 2 --layers 1 --micro-batches {micro_batches}"
    named = run(tmp_path / "named", options).found
    assert (named.schedule.name, named.schedule.source) == ("zb-h1", "recognised")
    assert named.schedule.unexplained == pytest.approx(0, abs=0.001)
    found = run(tmp_path / "unnamed", f"{options} --unnamed-weights").found
    assert (found.schedule.name, found.schedule.source) == ("1f1b", "uncertain")
    assert found.schedule.unexplained == pytest.approx(0.22, abs=0.03)
    assert any("22% of the compute between jobs belongs to no job" in note for note in found.notes)
    assert found.ideal.is_empty()
