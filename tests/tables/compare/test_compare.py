from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest

from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import KERNEL_AGGREGATES, Training
from nsys_pp.tables.compare import COMPARISON, compare_trainings
from tests.training.expected_training import simulate_training

CHANGED = ["slower", "faster"]


def verdict(
    frames: dict[str, pl.DataFrame], name: str, subject: str, *, stage: int | None = None, unit: str = "ns"
) -> str:
    same_stage = pl.col("stage").eq_missing(pl.lit(stage, pl.Int64))
    found = frames[name].filter(same_stage, pl.col("subject") == subject, pl.col("unit") == unit)
    return str(found["verdict"].item())


def with_kernels(training: Training, kernels: dict[str, tuple[int, int]], scatter: int = 0) -> Training:
    """Add kernels by name, (count, total) on each lane in each step."""
    lanes = training.steps.select("lane", "step")
    parts = [
        lanes.with_columns(
            name=pl.lit(name),
            count=count,
            total_ns=total + scatter * (pl.col("step") % 3),
            min_ns=0,
            max_ns=total,
            is_communication=False,
            kind=pl.lit("kernel"),
            full_name=None,
            job_kind=None,
            process_key=0,
            device_id=0,
        )
        for name, (count, total) in kernels.items()
    ]
    sums = pl.concat(parts)
    typed = conform(sums, KERNEL_AGGREGATES).drop("process_key", "device_id").with_columns(sums["lane"])
    return replace(training, kernels=typed)


def test_equal_runs_of_other_seeds_are_the_same() -> None:
    runs = [simulate_training(f"--seed {seed}") for seed in range(2, 6)]
    verdicts: Counter[str] = Counter()
    for a, b in combinations(runs, 2):
        for frame in compare_trainings(a, b).values():
            verdicts.update(frame["verdict"].to_list())
    assert sum(verdicts[one] for one in CHANGED) <= 0.01 * verdicts["same"]
    assert set(verdicts) <= {"same", *CHANGED}


def test_a_run_is_the_same_as_itself() -> None:
    training = with_kernels(simulate_training(), {"gemm": (8, 8_000)})
    for frame in compare_trainings(training, training).values():
        assert frame.schema == COMPARISON
        assert set(frame["verdict"]) == {"same"}
        assert set(frame["change_fraction"]) == {0.0}


def test_a_slow_rank_shows_where_it_is_and_what_it_costs() -> None:
    frames = compare_trainings(simulate_training(), simulate_training("--slow-rank 5=1.2 --seed 2"))
    assert verdict(frames, "steps", "step") == "slower"
    assert verdict(frames, "bubbles", "bubble", unit="fraction") == "slower"
    assert [verdict(frames, "stages", "compute", stage=stage) for stage in range(4)] == [
        "same",
        "same",
        "slower",
        "same",
    ]
    assert verdict(frames, "kinds", "forward", stage=2) == "slower"
    assert verdict(frames, "kinds", "forward", stage=1) == "same"
    step = frames["steps"].filter(subject="step").row(0, named=True)
    assert step["change_fraction"] == pytest.approx(step["b"] / step["a"] - 1)
    assert abs(step["change_fraction"]) > step["noise_fraction"] > 0


def test_the_other_way_round_it_got_faster() -> None:
    frames = compare_trainings(simulate_training("--slow-rank 5=1.2 --seed 2"), simulate_training())
    assert verdict(frames, "steps", "step") == "faster"
    assert verdict(frames, "bubbles", "bubble", unit="fraction") == "faster"


def test_a_stall_of_one_step_shows_in_the_longest_only() -> None:
    frames = compare_trainings(simulate_training(), simulate_training("--stall 12=30 --seed 2"))
    assert verdict(frames, "steps", "step") == "same"
    assert verdict(frames, "steps", "longest_step") == "slower"


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [3, 4, 8])
def test_one_stalled_step_of_few_is_beyond_the_noise_of_the_others(steps: int) -> None:
    runs = [
        simulate_training(f"--steps {steps} --seed {seed}{stall}")
        for seed, stall in ((1, ""), (2, ""), (3, " --stall 11=30"))
    ]
    for a, b, expected in ((0, 2, "slower"), (2, 0, "faster"), (0, 1, "same")):
        frames = compare_trainings(runs[a], runs[b])
        assert verdict(frames, "steps", "longest_step") == expected


def test_two_steps_each_tell_what_their_scatter_lets_them() -> None:
    runs = [simulate_training(f"--steps 2 --seed {seed}") for seed in (1, 2)]
    longest = compare_trainings(*runs)["steps"].filter(subject="longest_step").row(0, named=True)
    assert (longest["verdict"], longest["a_step_count"]) == ("same", 2)
    assert longest["noise_fraction"] > 0


def test_another_schedule_changes_the_bubble_and_no_job() -> None:
    frames = compare_trainings(
        simulate_training("--micro-batches 8"),
        simulate_training("--schedule zb-h1 --micro-batches 8 --seed 2"),
    )
    assert verdict(frames, "bubbles", "bubble", unit="fraction") == "faster"
    assert verdict(frames, "steps", "step") == "faster"
    assert verdict(frames, "kinds", "forward") == "same"
    assert verdict(frames, "kinds", "weight_gradient") == "new"
    assert verdict(frames, "stages", "compute", stage=1) == "same"


def test_a_slow_link_shows_as_transfer() -> None:
    frames = compare_trainings(simulate_training(), simulate_training("--slow-link 2,4=8 --seed 2"))
    assert verdict(frames, "bubbles", "message_transfer") == "slower"
    assert verdict(frames, "stages", "compute", stage=2) == "same"


def test_of_a_single_step_nothing_is_known_of_noise() -> None:
    frames = compare_trainings(simulate_training(), simulate_training("--steps 1"))
    for frame in frames.values():
        assert set(frame["verdict"]) <= {"unknown"}
        assert frame["noise_fraction"].is_null().all()


def test_kernels_are_matched_by_name() -> None:
    training = simulate_training()
    a = with_kernels(training, {"gemm": (8, 8_000_000), "relu": (4, 400_000), "old": (1, 10)}, scatter=10)
    b = with_kernels(training, {"gemm": (8, 9_000_000), "relu": (8, 800_000), "new": (1, 10)}, scatter=10)
    kernels = compare_trainings(a, b)["kernels"]
    assert kernels.select("subject", "metric", "verdict").rows() == [
        ("gemm", "total per lane", "slower"),
        ("gemm", "mean of one", "slower"),
        ("relu", "total per lane", "slower"),
        ("relu", "mean of one", "same"),
        ("old", "total per lane", "gone"),
        ("old", "mean of one", "gone"),
        ("new", "total per lane", "new"),
        ("new", "mean of one", "new"),
    ]
    gemm = kernels.row(0, named=True)
    assert gemm["change_fraction"] == pytest.approx(1 / 8, rel=1e-3)
    both = compare_trainings(a, b)["steps"].filter(subject="kernels").row(0, named=True)
    assert both["a"] == pytest.approx(8_400_010 + 30, abs=60)


def test_what_scatters_more_than_it_changes_is_the_same() -> None:
    training = simulate_training()
    a = with_kernels(training, {"gemm": (8, 8_000_000)}, scatter=2_000_000)
    b = with_kernels(training, {"gemm": (8, 8_500_000)}, scatter=2_000_000)
    assert set(compare_trainings(a, b)["kernels"]["verdict"]) == {"same"}


def test_steps_that_a_capture_cut_do_not_count() -> None:
    training = simulate_training()
    late = pl.when(step=10).then(pl.col("end_ns") + 10**9).otherwise("end_ns")
    cut = replace(training, steps=training.steps.with_columns(end_ns=late, is_partial=pl.col("step") == 10))
    step = compare_trainings(training, cut)["steps"].filter(subject="longest_step").row(0, named=True)
    assert (step["a_step_count"], step["b_step_count"], step["verdict"]) == (4, 3, "same")


def test_of_nothing_comes_nothing() -> None:
    training = simulate_training()
    names = ("steps", "jobs", "transfers", "lane_states", "ideal", "kernels")
    nothing = replace(training, **{name: getattr(training, name).clear() for name in names})
    for frame in compare_trainings(nothing, nothing).values():
        assert frame.equals(COMPARISON.to_frame())
    assert set(compare_trainings(nothing, training)["steps"]["verdict"]) == {"new"}
