"""Ids, schedules and labels of jobs, against the simulator's schedules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fixtures.program.schedule import SCHEDULES as SIMULATED
from fixtures.program.schedule import chunks_of, virtual_stage
from nsys_pp.frames.training import (
    RUN_JOBS,
    RUN_STEPS,
    Schedule,
    Training,
)
from nsys_pp.options import SCHEDULES
from nsys_pp.training.ideal import build_ideal
from nsys_pp.training.orders import order_jobs
from nsys_pp.training.schedule import (
    label_jobs,
    recognise_schedule,
    resolve_jobs,
)
from tests.commands.whole import run
from tests.training.expected_training import (
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
        assert jobs[virtual].to_list() == [
            None if chunk is None else virtual_stage(training.schedule.name, stage, stages, chunk)
            for stage, chunk in placed.select("stage", chunk).iter_rows()
        ]
    is_inferred = "micro_batch" in hidden or (training.schedule.chunk_count > 1 and "chunk" in hidden)
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
        assert jobs.filter(~here).select(IDS).equals(cut.filter(~here).select(IDS))


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


def recognise(
    training: Training, *, hidden: tuple[str, ...] = (), schedule_name: str | None = None
) -> Schedule:
    jobs, _ = resolve_jobs(training.lanes, training.steps, build_unresolved_jobs(training, hidden=hidden))
    return recognise_schedule(training.lanes, training.steps, jobs, schedule_name=schedule_name)


@st.composite
def shapes(
    draw: st.DrawFn, *, least_stages: int = 1, least_micro_batches: int = 0
) -> tuple[str, int, int, int]:
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
        assert order.select("kind", *IDS).rows() == [
            (
                {"weight": "weight_gradient"}.get(job.kind, job.kind),
                job.micro_batch,
                job.chunk,
                job.partner.micro_batch if job.partner else None,
                job.partner.chunk if job.partner else None,
            )
            for job in SIMULATED[schedule](stage, stages, micro_batches, chunks)
        ]


@settings(deadline=None, max_examples=50)
@given(shapes(least_stages=2, least_micro_batches=1), st.booleans())
@example(
    ("interleaved", 6, 15, 4), False
)  # in the order of 12 micro-batches in 5 chunks: the counts are unknown
@example(("interleaved", 6, 12, 5), False)
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


def test_an_order_that_is_no_schedule_is_unknown() -> None:
    training = build_scheduled_run("1f1b", stages=4, micro_batches=16)
    shuffled = training.jobs.with_columns(pl.col(TIMES).shuffle(seed=1).over("lane", "step"))
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
    found = recognise(replace(training, jobs=placed.with_columns(pl.col(name) + moved for name in TIMES)))
    assert found.agreement > 0.95
    assert found.name == "unknown"
    assert "another warm-up" in found.reason


def test_a_schedule_that_is_given_is_believed_and_its_agreement_told() -> None:
    found = recognise(build_scheduled_run("gpipe", stages=4, micro_batches=8), schedule_name="1f1b")
    assert (found.name, found.source, found.reason) == ("1f1b", "given", "")
    assert found.agreement < 0.8


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "reason"),
    [
        ("1f1b", 1, 8, "there is one stage, and no pipeline"),
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


def test_a_lane_that_lacks_a_job_has_labels_but_no_phases() -> None:
    training = build_scheduled_run("dualpipev", stages=2, micro_batches=4, chunks=2, steps=1)
    jobs = training.jobs.filter(~((pl.col("lane") == 0) & (pl.col("start_ns") == 3000)))
    labelled = label_jobs(jobs.with_columns(job=pl.int_range(pl.len())), training.lanes, training.schedule)
    assert dict(labelled.group_by("lane").agg(pl.col("phase").null_count()).iter_rows()) == {0: 13, 1: 0}
    assert labelled["label"].to_list()[:4] == ["0", "1", "2", "4b"]


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
    assert any("22 % of the compute between jobs belongs to no job" in note for note in found.notes)
    assert found.ideal.is_empty()


Key = tuple[int, int, int, int]  # replica, tensor, virtual stage, micro-batch


def resolved(training: Training) -> Training:
    jobs, _ = resolve_jobs(training.lanes, training.steps, build_unresolved_jobs(training))
    return replace(training, jobs=jobs)


def ideal_of(training: Training) -> tuple[pl.DataFrame, list[str]]:
    return build_ideal(training.lanes, training.steps, training.jobs, training.schedule)


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


@pytest.mark.few(3)
@pytest.mark.parametrize("run", RUNS)
def test_jobs_run_again_as_defined(run: str) -> None:
    training = resolved(simulate_run(RUNS[run]))
    ideal, notes = ideal_of(training)
    assert not notes
    zero = dict(training.steps.group_by("step").agg(pl.col("start_ns").min()).iter_rows())
    assert {
        (lane, job): (start - zero[step], end - zero[step])
        for lane, step, job, start, end in ideal.select("lane", "step", "job", "start_ns", "end_ns").rows()
    } == expected_ideal(training)
    assert ideal.equals(ideal.sort("lane", "start_ns"))


def test_the_optimizer_comes_last() -> None:
    training = build_scheduled_run("1f1b", stages=2, micro_batches=2, steps=1)
    update = training.jobs.filter((pl.col("micro_batch") == 0) & (pl.col("kind") == "forward")).with_columns(
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


def test_steps_of_which_jobs_are_missing_unknown_or_wait_for_each_other_have_no_ideal() -> None:
    training = resolved(build_scheduled_run("1f1b", stages=2, micro_batches=4))
    is_odd = (pl.col("step") == 1) & (pl.col("lane") == 0) & (pl.col("kind") == "backward")
    lost = training.jobs.filter(~(is_odd & (pl.col("micro_batch") == 3))).with_columns(
        job=pl.int_range(pl.len())
    )
    unknown = "some of their forwards and backwards are unknown or missing"
    ideal, notes = ideal_of(replace(training, jobs=lost))
    assert ideal["step"].unique().to_list() == [0, 1]
    assert not notes  # nobody waits for a backward of the first stage
    is_first = (pl.col("step") == 1) & (pl.col("lane") == 0) & (pl.col("kind") == "forward")
    late = pl.when(is_first & (pl.col("micro_batch") == 0)).then(100_000).otherwise(0)
    few = (pl.col("step") == 0) | (pl.col("micro_batch") != 3) | (pl.col("lane") == 0)
    for change, why in (
        (training.jobs.filter(few), unknown),
        (training.jobs.with_columns(virtual_stage=pl.when(~is_odd).then("virtual_stage")), unknown),
        (training.jobs.with_columns(micro_batch=pl.when(is_odd).then(0).otherwise("micro_batch")), unknown),
        (training.jobs.with_columns(pl.col("compute_start_ns") + late), "their jobs have a dependency cycle"),
    ):
        jobs = change.with_columns(job=pl.int_range(pl.len(), dtype=pl.UInt32))
        ideal, notes = ideal_of(replace(training, jobs=jobs))
        assert ideal["step"].unique().to_list() == [0]
        assert notes == [f"1 steps have no ideal: {why}"]


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
