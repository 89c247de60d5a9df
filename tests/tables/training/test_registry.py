from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    BUBBLE_CAUSES,
    CAUSES,
    IDEAL,
    MICRO_BATCH_KINDS,
    POSITION,
    Schedule,
    Training,
)
from nsys_pp.tables.analysis import (
    CAUSE_COLUMNS,
    POSITION_COLUMNS,
    select_outermost,
    sum_lane_steps,
    sum_own_compute,
)
from nsys_pp.tables.registry import TRAINING_TABLES as TABLES
from nsys_pp.tables.training import ideal_bubble_fraction
from tests.training.expected_training import Row, build_small_training, simulate_training

POSITIONS = POSITION.categories.to_list()
_ENDINGS = ("_ns", "_fraction", "_per_s", "_requests", "_tokens")
SCHEDULES = ["", "--schedule gpipe", "--schedule interleaved", "--schedule dualpipev --micro-batches 8"]


def build(name: str, training: Training) -> pl.DataFrame:
    return TABLES[name].build(training)


def with_ideal(training: Training, shift_ns: int = 1_000) -> Training:
    """Add the ideal of a training: every job `shift_ns` long, one after the other, on each lane."""
    number = pl.int_range(pl.len()).over("lane", "step") * shift_ns
    ideal = training.jobs.with_columns(start_ns=number, end_ns=number + shift_ns)
    return replace(training, ideal=conform(ideal, IDEAL))


def empty(training: Training) -> Training:
    """Leave out all that happened."""
    names = ("steps", "jobs", "transfers", "lane_states", "ideal", "kernels")
    return replace(training, **{name: getattr(training, name).clear() for name in names})


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_it_describes(name: str) -> None:
    table = TABLES[name]
    full = table.build(simulate_training())
    assert dict(full.schema) == {column.name: column.dtype for column in table.columns}
    assert all(column.meaning for column in table.columns)
    # the truth has neither kernels, calls, nor batches
    assert full.is_empty() == name.endswith(("families", "gaps", "iterations"))
    nothing = table.build(empty(simulate_training()))
    assert nothing.schema == full.schema
    assert nothing.height == (1 if name == "schedule" else 0)


@pytest.mark.parametrize("name", TABLES)
def test_units_are_in_the_names(name: str) -> None:
    for column, dtype in build(name, simulate_training()).schema.items():
        if dtype.is_float():
            assert column.endswith(_ENDINGS) or column == "fraction", column


@pytest.mark.parametrize("options", SCHEDULES)
def test_compute_pauses_and_bubbles_are_the_span(options: str) -> None:
    sums = sum_lane_steps(simulate_training(options))
    span = pl.col("span_ns")
    assert sums.select((pl.sum_horizontal(CAUSE_COLUMNS) == span).all()).item()
    assert sums.select((pl.sum_horizontal(POSITION_COLUMNS) == pl.col("bubble_ns")).all()).item()
    assert sums.select((pl.sum_horizontal("compute_ns", "pause_ns", "bubble_ns") == span).all()).item()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(CAUSES), st.integers(1, 10**12), st.sampled_from(POSITIONS)
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None, max_examples=50)
def test_whatever_the_pieces_they_add_up(drawn: list[tuple[int, str, int, str]]) -> None:
    now = [0, 0, 0]
    rows: list[Row] = []
    for lane, cause, length, _ in drawn:
        rows.append((lane, cause, now[lane], now[lane] + length, None))
        now[lane] += length
    made = build_small_training(rows)
    positions = pl.Series([position for *_, position in drawn], dtype=POSITION)
    sums = sum_lane_steps(replace(made, lane_states=made.lane_states.with_columns(position=positions)))
    for row in sums.rows(named=True):
        assert row["span_ns"] == now[row["lane"]] == sum(row[column] for column in CAUSE_COLUMNS)
        assert row["bubble_ns"] == sum(row[column] for column in POSITION_COLUMNS)
        assert row["span_ns"] == row["compute_ns"] + row["pause_ns"] + row["bubble_ns"]


@pytest.mark.parametrize("name", ["stages", "lanes"])
def test_the_parts_of_a_stage_add_up(name: str) -> None:
    for row in build(name, simulate_training()).rows(named=True):
        assert row["compute_ns"] + row["pause_ns"] + row["bubble_ns"] == pytest.approx(
            row["span_ns"], rel=1e-12
        )
        for parts in (POSITION_COLUMNS, [f"{cause}_ns" for cause in BUBBLE_CAUSES]):
            assert sum(row[part] for part in parts) == pytest.approx(row["bubble_ns"], rel=1e-12)
        assert row["min_bubble_ns"] <= row["median_bubble_ns"] <= row["max_bubble_ns"]
        assert row["min_bubble_ns"] <= row["bubble_ns"] <= row["max_bubble_ns"]


def test_the_sums_of_a_lane_are_those_of_the_truth() -> None:
    training = simulate_training()
    totals: dict[tuple[int, str], int] = {}
    for lane, cause, start, end in training.lane_states.select("lane", "cause", "start_ns", "end_ns").rows():
        totals[lane, cause] = totals.get((lane, cause), 0) + end - start
    for row in build("lanes", training).rows(named=True):
        assert row["step_count"] == 4
        for cause in ("compute", *BUBBLE_CAUSES):
            assert row[f"{cause}_ns"] == pytest.approx(totals.get((row["lane"], cause), 0) / 4)


def test_a_step_lasts_from_its_first_lane_to_its_last() -> None:
    training = simulate_training()
    spans = training.steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("step")
    steps = build("steps", training)
    assert steps["step"].to_list() == [10, 11, 12, 13]
    assert steps["span_ns"].to_list() == (spans["end_ns"] - spans["start_ns"]).to_list()
    assert steps["start_ns"].to_list() == (spans["start_ns"] - training.zero_ns).to_list()
    for row in steps.rows(named=True):
        assert row["compute_fraction"] + row["bubble_fraction"] == pytest.approx(
            1, abs=1e-3
        )  # no pauses here
        assert row["bubble_fraction"] <= row["worst_bubble_fraction"] < 1


@pytest.mark.parametrize("options", ["--layers 1", "--jitter 0.1", "--micro-batches 1", "--pp 1 --dp 4"])
def test_a_step_without_a_slow_stage_has_no_slowest_one(options: str) -> None:
    # the loss is computed by the last stage: it is left out
    training = simulate_training(f"{options} --seed 3")
    last = training.lanes["stage"].max()
    lanes = training.lanes.with_columns(
        stage=pl.when(pl.col("stage") < last).then("stage") if last else pl.col("stage")
    )
    assert build("steps", replace(training, lanes=lanes))["slowest_stage"].null_count() == 4


def test_of_two_equally_slow_stages_neither_is_the_slowest() -> None:
    table = build("steps", simulate_training("--stage-costs 1,1.3,1.3,1"))
    assert table["slowest_stage"].null_count() == len(table)


def test_the_slowest_stage_of_a_step_is_the_planted_one() -> None:
    assert set(build("steps", simulate_training("--stage-costs 1,1.3,1,1"))["slowest_stage"]) == {1}


def test_cut_steps_are_left_out_of_sums_and_marked() -> None:
    training = simulate_training()
    is_cut = (pl.col("step") == 10) & (pl.col("lane") == 3)
    cut = replace(training, steps=training.steps.with_columns(is_partial=is_cut))
    assert build("steps", cut)["is_partial"].to_list() == [True, False, False, False]
    assert set(build("lanes", cut)["step_count"]) == {3}
    assert build("kinds", cut)["job_count"].sum() == training.jobs.height * 3 // 4


def test_where_every_step_is_cut_all_count() -> None:
    training = simulate_training()
    cut = replace(training, steps=training.steps.with_columns(is_partial=pl.lit(True)))
    assert build("stages", cut).equals(build("stages", training))


def test_kinds_are_those_of_the_jobs() -> None:
    training = simulate_training()
    kinds = build("kinds", training)
    assert kinds["job_count"].sum() == training.jobs.height
    first = training.jobs.join(training.lanes.select("lane", "stage"), on="lane").filter(
        stage=0, kind="forward"
    )
    compute = first["compute_end_ns"] - first["compute_start_ns"]
    row = kinds.filter(stage=0, kind="forward").row(0, named=True)
    assert (row["median_ns"], row["min_ns"], row["max_ns"]) == (
        compute.median(),
        compute.min(),
        compute.max(),
    )
    assert row["total_ns"] == compute.sum()


def test_kinds_are_split_by_role() -> None:
    training = simulate_training()
    is_even = pl.col("micro_batch") % 2 == 0
    role = pl.when(is_even).then(pl.lit("actor")).otherwise(pl.lit("critic"))
    kinds = build("kinds", replace(training, jobs=training.jobs.with_columns(role=role)))
    assert kinds["job_count"].sum() == training.jobs.height
    roles = kinds.filter(stage=0, kind="forward").select("role", "job_count").rows()
    forwards = training.jobs.join(training.lanes.select("lane", "stage"), on="lane").filter(
        stage=0, kind="forward"
    )
    assert dict(roles) == {
        "actor": forwards.filter(is_even).height,
        "critic": forwards.filter(~is_even).height,
    }
    assert build("kinds", training)["role"].null_count() == build("kinds", training).height


def test_what_a_stage_gains_is_its_bubble_beyond_the_ideal_one() -> None:
    training = with_ideal(simulate_training("--schedule gpipe"))
    for row in build("lanes", training).rows(named=True):
        assert row["ideal_bubble_ns"] == 0  # all lanes have as many jobs
        assert row["gain_ns"] == row["bubble_ns"]
    assert set(build("steps", training)["ideal_bubble_fraction"]) == {0.0}


def test_the_ideal_bubble_is_what_lanes_do_not_spend_in_jobs() -> None:
    training = simulate_training()
    jobs = training.jobs.filter(pl.col("lane") < 2).group_by("lane", "step", maintain_order=True).first()
    length = pl.when(pl.col("lane") == 0).then(30).otherwise(10)
    ideal = conform(jobs.with_columns(start_ns=pl.lit(0), end_ns=length), IDEAL)
    lanes = build("lanes", replace(training, ideal=ideal))
    assert lanes["ideal_bubble_ns"].to_list() == [0, 20, *[None] * 6]
    steps = build("steps", replace(training, ideal=ideal))
    assert steps["ideal_bubble_fraction"].to_list() == pytest.approx([20 / 60] * 4)


@pytest.mark.parametrize(
    ("name", "chunks", "expected"),
    [
        ("1f1b", 1, 3 / 11),
        ("gpipe", 1, 3 / 11),
        ("interleaved", 2, 3 / 19),
        ("zb-h1", 1, None),
        ("unknown", 0, None),
    ],
)
def test_ideal_bubbles_have_the_published_closed_forms(
    name: str, chunks: int, expected: float | None
) -> None:
    schedule = Schedule(
        name=name, source="given", stage_count=4, micro_batch_count=8, chunk_count=chunks, agreement=1.0
    )
    closed = ideal_bubble_fraction(schedule)
    assert (closed and closed[1]) == expected


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_simulated_schedules_come_near_their_closed_forms(name: str, chunks: int) -> None:
    """Over the span of jobs alone, with stages alike; messages and launches make it a little more."""
    training = simulate_training(f"--schedule {name} --micro-batches 8 --layers 6 --steps 2")
    span = pl.col("end_ns").max() - pl.col("start_ns").min()
    measured = training.jobs.filter(step=10).select(1 - pl.col("compute_ns").sum() / (span * 8)).item()
    closed = ideal_bubble_fraction(
        Schedule(
            name=name, source="given", stage_count=4, micro_batch_count=8, chunk_count=chunks, agreement=1.0
        )
    )
    assert closed is not None
    assert closed[1] == pytest.approx(measured, abs=0.04)


def test_an_unknown_schedule_says_why() -> None:
    unknown = Schedule(
        name="unknown",
        source="",
        stage_count=0,
        micro_batch_count=0,
        chunk_count=0,
        agreement=0.0,
        reason="no stage is known",
    )
    row = build("schedule", replace(simulate_training(), schedule=unknown)).row(0, named=True)
    assert (row["sentence"], row["stage_count"], row["formula"]) == ("no stage is known", None, None)
    assert row["bubble_fraction"] > 0


def test_links_hold_the_waits_and_transfers_of_their_messages() -> None:
    training = simulate_training()
    links = build("links", training)
    assert links["message_count"].sum() == training.transfers.height
    for row in links.rows(named=True):
        transfers = training.transfers.filter(sender=row["sender"], receiver=row["receiver"])
        assert row["median_wait_ns"] == transfers["receive_wait_ns"].median()
        assert row["median_transfer_ns"] == transfers["transfer_ns"].median()
    between = links.filter("is_between_machines").select("sender_stage", "receiver_stage").unique()
    assert sorted(between.rows()) == [(1, 2), (2, 1)]


def test_nested_work_counts_once() -> None:
    training = simulate_training()
    inner = training.jobs.with_columns(job=pl.col("job") + training.jobs.height, outer=pl.col("job"))
    nested = pl.concat(
        [training.jobs, inner.with_columns(kind=pl.lit("recompute", training.jobs["kind"].dtype))]
    )
    assert select_outermost(nested, MICRO_BATCH_KINDS).equals(training.jobs)
    assert sum_own_compute(replace(training, jobs=nested)).equals(sum_own_compute(training))
