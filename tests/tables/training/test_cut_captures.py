"""Tables of runs of which the captures cut every step on some lane: they have the values of lanes with a whole step."""

from __future__ import annotations

import polars as pl
import pytest

from nsys_pp.frames.training import Training
from nsys_pp.tables.analysis import select_whole_steps, sum_lane_steps
from nsys_pp.tables.compare import describe_training, sample_training
from nsys_pp.tables.compare_verdict import ComparisonError, compare_facts
from nsys_pp.tables.evidence import Evidence, compare_members
from nsys_pp.tables.page import build_rank_steps
from nsys_pp.tables.registry import TRAINING_TABLES as TABLES
from nsys_pp.tables.training import UTILISATION_TABLE, Work
from nsys_pp.training.numbering import describe_cuts
from tests.tables.training.cut_captures import cut_training
from tests.training.expected_training import simulate_training

_CUTS: dict[str, pl.Expr] = {
    "none": pl.lit(value=False),
    "one step": pl.col("step") == 10,
    "every step on some lane": pl.when(step=10).then(pl.col("lane") < 3).otherwise(pl.col("lane") >= 3),
    "all": pl.lit(value=True),
}
WORK = Work(flops=1e12, formula="", data_type="bf16", gpus=("NVIDIA H100 80GB HBM3",) * 8, gpu_count=8)


@pytest.fixture(params=_CUTS)
def cut(request: pytest.FixtureRequest) -> tuple[str, Training, Training]:
    training = simulate_training("--steps 2 --micro-batches 4 --dp 2 --jitter 0.01")
    return request.param, training, cut_training(training, _CUTS[request.param])


def test_means_are_those_of_whole_steps_of_the_run(cut: tuple[str, Training, Training]) -> None:
    name, full, training = cut
    whole = {
        "none": pl.lit(value=True),
        "one step": pl.col("step") == 11,
        "every step on some lane": (pl.col("step") == 10) == (pl.col("lane") >= 3),
        "all": pl.lit(value=True),  # of what is recorded
    }[name]
    rows = sum_lane_steps(training if name == "all" else full).filter(whole).to_dicts()
    selected = select_whole_steps(training)
    assert [(row["lane"], row["step"]) for row in selected.to_dicts()] == [
        (row["lane"], row["step"]) for row in rows
    ]
    assert selected["span_ns"].to_list() == [row["span_ns"] for row in rows]
    lanes = TABLES["lanes"].build(training)
    for lane in lanes.to_dicts():
        own = [row["span_ns"] for row in rows if row["lane"] == lane["lane"]]
        assert lane["span_ns"] == pytest.approx(sum(own) / len(own))
    assert TABLES["stages"].build(training)["lane_count"].sum() == lanes.height
    is_gray = build_rank_steps(training).filter(~pl.col("is_complete")).height
    assert is_gray == {"none": 0, "one step": 8, "every step on some lane": 8, "all": 16}[name]


def test_samples_are_those_of_whole_steps_of_the_run(cut: tuple[str, Training, Training]) -> None:
    name, full, training = cut
    samples = sample_training(training)["ranks"]
    of_run = sample_training(full)["ranks"]
    key = ["subject", "metric", "step"]
    assert samples.rows() == of_run.join(samples, on=key, how="semi", maintain_order="left").rows()
    assert samples.height == {"none": 16, "one step": 8, "every step on some lane": 8, "all": 0}[name]
    facts, of_run_facts = describe_training(training), describe_training(full)
    if name == "all":
        with pytest.raises(ComparisonError, match="run B has no complete step"):
            compare_facts(of_run_facts, facts)
    else:
        assert len(compare_facts(of_run_facts, facts))


def test_a_run_of_cut_steps_has_a_note(cut: tuple[str, Training, Training]) -> None:
    name, _, training = cut
    assert describe_cuts(training.steps) == {
        "none": [],
        "one step": [],
        "every step on some lane": [
            "every step is cut by the capture on some rank: means of stages and lanes are of the 8 of 8 ranks with a whole step"
        ],
        "all": [
            "every step is cut by the capture on every rank: times of steps are those of the recorded parts"
        ],
    }.get(name)
    assert describe_cuts(training.steps.clear()) == []


def test_a_part_of_a_step_has_no_utilisation(cut: tuple[str, Training, Training]) -> None:
    name, _, training = cut
    table = UTILISATION_TABLE.build(training, WORK)
    assert table["step"].to_list() == ([11] if name == "one step" else [10, 11])
    is_known = name in ("none", "one step")
    assert table["mfu_fraction"].is_not_null().to_list() == [is_known] * len(table)


def test_a_micro_batch_without_its_forward_is_not_compared() -> None:
    """The capture of lane 0 begins after the forwards of a GPipe step: of its micro-batches, only backwards are recorded."""
    training = simulate_training("--steps 1 --micro-batches 4 --dp 2 --schedule gpipe --jitter 0.01")
    own = Evidence(cut_training(training, pl.col("lane") == 0)).own_compute
    assert sorted(own["lane"].unique()) == training.lanes["lane"].to_list()[1:]
    assert compare_members(own, member="lane", group=["stage"], least=0.03).slow == []
