from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from fixtures.program.schedule import SCHEDULES as SIMULATED
from fixtures.program.schedule import chunks_of
from nsys_pp.frames.choices import SCHEDULES
from nsys_pp.frames.training import RUN_JOBS, RUN_STEPS, SCHEDULED_KINDS, Schedule, Training
from nsys_pp.training.orders import order_jobs
from nsys_pp.training.schedule import label_jobs, recognise_schedule, resolve_jobs
from tests.training.expected_training import expected_training
from tests.training.scheduled_runs import (
    IDS,
    RUNS,
    build_scheduled_run,
    build_unresolved_jobs,
    list_alternatives,
    simulate_run,
)


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


def test_micro_batches_of_an_unknown_schedule_are_those_that_names_say() -> None:
    """Of two chunks, the last forward is missing: the number of forwards is no multiple of the chunks."""
    training = build_scheduled_run("interleaved", stages=2, micro_batches=3, chunks=2)
    of_second = (pl.col("chunk") == 1) & (pl.col("micro_batch") == 2)
    cut = replace(training, jobs=training.jobs.filter(~of_second))
    assert recognise(cut).name == "unknown"
    assert recognise(cut).micro_batch_count == 3
    assert recognise(cut, hidden=("micro_batch",)).micro_batch_count == 0


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


def test_megatron_may_pass_groups_of_any_size_through_a_chunk() -> None:
    order = order_jobs("interleaved", stage=1, stages=2, micro_batches=5, chunks=2, group=3)
    forwards = order.kind == SCHEDULED_KINDS.index("forward")
    assert order.micro_batch[forwards].tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert order.chunk[forwards].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert order.kind.tolist()[:5] == [0, 0, 0, 0, 1]


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


@pytest.mark.parametrize(
    "trouble", ["--stall 11=30", "--slow-rank 2=3", "--stage-costs 1,3,1,0.2", "--recompute"]
)
def test_what_goes_wrong_does_not_change_the_schedule(trouble: str) -> None:
    assert recognise(simulate_run(f"--schedule 1f1b {trouble}")).name == "1f1b"


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


def test_one_job_out_of_its_turn_does_no_harm() -> None:
    training = build_scheduled_run("gpipe", stages=4, micro_batches=16)
    late = (pl.col("lane") == 2) & (pl.col("micro_batch") == 7) & (pl.col("kind") == "forward")
    moved = training.jobs.with_columns(
        pl.when(late).then(pl.col(name) + 1500).otherwise(name).alias(name)
        for name in ("start_ns", "end_ns", "compute_start_ns", "compute_end_ns")
    )
    found = recognise(replace(training, jobs=moved))
    assert found.name == "gpipe"
    assert 0.95 < found.agreement < 1


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


@pytest.mark.parametrize("run", ["1f1b", "gpipe", "interleaved"])
def test_labels_are_micro_batches(run: str) -> None:
    training = simulate_run(RUNS[run])
    assert label_jobs(training.jobs, training.lanes, training.schedule)["label"].equals(
        training.jobs["label"]
    )


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


def test_labels_of_nothing_are_none() -> None:
    for name in SCHEDULES:
        schedule = structs.replace(build_scheduled_run("1f1b", stages=1, micro_batches=1).schedule, name=name)
        labelled = label_jobs(RUN_JOBS.to_frame(), expected_training().lanes, schedule)
        assert labelled.equals(RUN_JOBS.to_frame())
