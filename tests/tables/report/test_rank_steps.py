"""Values of ranks in steps, and the steps that are shown, against their definitions in plain loops."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.training import Training
from nsys_pp.tables.analysis import sum_lane_steps
from nsys_pp.tables.page import build_rank_steps, choose_steps, measure_steps
from nsys_pp.tables.training import build_lane_table, build_step_table
from tests.draws import count_draws
from tests.output.large_training import make_large_training
from tests.training.expected_training import expected_training

WAITS = (
    "message",
    "message_wait",
    "message_transfer",
    "collective",
    "collective_wait",
    "collective_transfer",
)
LATE = ("host", "data")


def with_slow_rank(training: Training, lane: int, since: int, factor: float) -> Training:
    """Make the jobs of a rank longer since a step."""
    is_slow = (pl.col("lane") == lane) & (pl.col("step") >= since)
    longer = pl.when(is_slow).then((pl.col("compute_ns") * factor).cast(pl.Int64)).otherwise("compute_ns")
    return replace(training, jobs=training.jobs.with_columns(compute_ns=longer))


def own_excess(training: Training, lane: int, step: int) -> float | None:
    """Compare the own compute of a lane with its peers, micro-batch by micro-batch."""
    stages = dict(training.lanes.select("lane", "stage").iter_rows())
    own: dict[tuple[int, int | None], int] = {}
    for job in training.jobs.filter(step=step).to_dicts():
        if job["kind"] in ("forward", "backward") and job["compute_start_ns"] is not None:
            key = job["lane"], job["micro_batch"]
            own[key] = own.get(key, 0) + job["compute_ns"]
    excesses = []
    for (of_lane, batch), value in own.items():
        if of_lane != lane or value <= 0:
            continue
        others = {
            other: time for (other, at), time in own.items() if at == batch and other != lane and time > 0
        }
        peers = [time for other, time in others.items() if stages[other] == stages[lane]] or [
            *others.values()
        ]
        if peers:
            excesses.append(value / median(peers) - 1)
    return median(excesses) if excesses else None


@given(
    lanes=st.integers(1, 6),
    per_stage=st.integers(1, 3),
    steps=st.integers(1, 3),
    slow=st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([1.0, 1.3, 2.0])),
)
@settings(max_examples=count_draws(40))
def test_values_are_those_of_the_definition(
    lanes: int, per_stage: int, steps: int, slow: tuple[int, int, float]
) -> None:
    made = make_large_training(lanes=lanes, steps=steps, micro_batches=2, per_stage=per_stage)
    training = with_slow_rank(made, *slow)
    rows = build_rank_steps(training)
    assert rows.select("lane", "step").rows() == [
        (lane, step) for lane in range(lanes) for step in range(steps)
    ]
    for row in rows.to_dicts():
        excess = own_excess(training, row["lane"], row["step"])
        assert row["excess_fraction"] == (None if excess is None else pytest.approx(excess))
        states = training.lane_states.filter(lane=row["lane"], step=row["step"]).to_dicts()
        for name, causes in (("wait_ns", WAITS), ("late_ns", LATE)):
            times = (state["end_ns"] - state["start_ns"] for state in states if state["cause"] in causes)
            assert row[name] == sum(times)
        assert row["end_ns"] - row["start_ns"] == row["span_ns"]


def test_the_slow_rank_is_the_largest_value_since_its_step() -> None:
    training = with_slow_rank(
        make_large_training(lanes=8, steps=4, micro_batches=4, per_stage=4), lane=5, since=2, factor=1.4
    )
    rows = build_rank_steps(training)
    beyond = rows.filter(pl.col("excess_fraction") > 0.2).select("lane", "step").rows()
    assert beyond == [(5, 2), (5, 3)]


def test_means_over_steps_are_those_of_the_lane_table() -> None:
    training = expected_training()
    means = build_rank_steps(training).filter("is_complete").group_by("lane").mean().sort("lane")
    table = build_lane_table(training).sort("lane")
    for name in ("span_ns", "compute_ns", "bubble_ns"):
        assert means[name].to_list() == pytest.approx(table[name].to_list())


def test_many_steps_are_combined() -> None:
    training = make_large_training(lanes=2, steps=5, micro_batches=2, per_stage=2)
    single, blocks = build_rank_steps(training), build_rank_steps(training, most_cells=4)
    assert blocks.select("lane", "step", "last_step").rows() == [
        (lane, first, min(first + 2, 4)) for lane in (0, 1) for first in (0, 3)
    ]
    first = single.filter(pl.col("lane") == 0, pl.col("step") < 3)
    row = blocks.row(0, named=True)
    assert row["bubble_ns"] == pytest.approx(first["bubble_ns"].mean())
    assert row["excess_fraction"] == first["excess_fraction"].max()
    assert (row["start_ns"], row["end_ns"]) == (first["start_ns"].min(), first["end_ns"].max())


def test_nothing_of_nothing() -> None:
    training = make_large_training(lanes=2, steps=2, micro_batches=2, per_stage=2)
    empty = {
        name: getattr(training, name).clear() for name in ("steps", "jobs", "lane_states", "cover", "ideal")
    }
    nothing = replace(training, **empty)
    assert build_rank_steps(nothing).is_empty()
    assert choose_steps(nothing, measure_steps(nothing)) == []


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=7))
@settings(max_examples=count_draws(40))
def test_shown_steps_have_the_median_and_the_greatest_length(lengths: list[int]) -> None:
    base = make_large_training(lanes=2, steps=len(lengths), micro_batches=1, per_stage=2)
    of_step = pl.col("step").replace_strict(dict(enumerate(lengths)), return_dtype=pl.Int64)
    steps = base.steps.with_columns(end_ns=pl.col("start_ns") + of_step * 1_000_000_000)
    training = replace(base, steps=steps)
    ordered = sorted((length, step) for step, length in enumerate(lengths))
    typical = ordered[(len(ordered) - 1) // 2]
    longest = max(lengths)
    expected = [("typical", typical[1])] + [("worst", lengths.index(longest))] * (longest > typical[0])
    shown = choose_steps(training, measure_steps(training))
    assert [(step.role, step.step) for step in shown] == expected
    for step in shown:
        rows = sum_lane_steps(training).filter(step=step.step)
        assert step.start_ns == rows["start_ns"].min() - training.zero_ns  # type: ignore[operator]
        assert step.end_ns == rows["end_ns"].max() - training.zero_ns  # type: ignore[operator]
        assert step.span_ns == step.end_ns - step.start_ns


def test_lengths_without_common_clocks_are_medians_of_ranks() -> None:
    base = make_large_training(lanes=3, steps=2, micro_batches=1, per_stage=3)
    lanes = base.lanes.with_columns(
        clock=pl.Series([0, 1, 2], dtype=pl.UInt32), clock_group=pl.Series([0, 1, 2], dtype=pl.UInt32)
    )
    training = replace(base, lanes=lanes)
    spans = sum_lane_steps(training).group_by("step").agg(pl.col("span_ns").median()).sort("step")
    assert measure_steps(training).rows() == spans.rows()
    assert measure_steps(base)["span_ns"].to_list() == build_step_table(base)["span_ns"].to_list()
