"""Steps in other orders: predicted from one run, and simulated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nsys_pp
from fixtures import simulate
from nsys_pp.errors import MissingDataError
from nsys_pp.frames.training import MESSAGE_KINDS
from tests.importer import Importer, slices_by_machine
from tests.worlds.scores import Truth
from tests.worlds.verdicts import mean_step

BASE = "--pp 4 --dp 2 --steps 3 --names megatron --jitter 0.01 --no-norm --seed 61 --layers 2"
BASE_JOBS = "--micro-batches 6"


def step_of(folder: Path, *options: str) -> float:
    """Simulate a run; the time of its mean step in ns."""
    simulate.main([str(folder), *" ".join((BASE, *options)).split()])
    return mean_step(Truth(folder).table("steps"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    folder = tmp_path_factory.mktemp("recorded")
    return folder, step_of(folder, BASE_JOBS)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("twin", "asked"),
    [
        ("--micro-batches 12", {"micro_batches": 12}),
        ("--micro-batches 3", {"micro_batches": 3}),
        ("--micro-batches 6 --schedule gpipe", {"schedule": "gpipe"}),
        ("--micro-batches 6 --schedule zb-h1", {"schedule": "zb-h1"}),
        ("--micro-batches 6 --schedule interleaved --chunks 2 --layers 1", {"schedule": "interleaved"}),
        ("--micro-batches 12 --schedule zb-h1", {"schedule": "zb-h1", "micro_batches": 12}),
    ],
)
def test_another_order_takes_as_long_as_it_is_predicted_to(
    recorded: tuple[Path, float], tmp_path: Path, twin: str, asked: dict[str, Any]
) -> None:
    folder, step = recorded
    true = step_of(tmp_path, twin)
    found = nsys_pp.whatif(folder, layout="pp=4,dp=2", **asked).predictions.row(-1, named=True)
    least = found["step_ns"] - (found["most_gain_ns"] - found["gain_ns"])
    assert 0.97 * least <= true <= 1.03 * found["step_ns"]
    more = asked.get("micro_batches", 6) / 6
    measured = found["step_ns"] + found["gain_ns"]  # of as many micro-batches
    assert measured == pytest.approx(more * step, rel=0.01)
    assert found["speed_up"] == pytest.approx(measured / found["step_ns"])


def test_what_is_assumed_is_said_and_makes_a_range(recorded: tuple[Path, float]) -> None:
    done = nsys_pp.whatif(recorded[0], layout="pp=4,dp=2", schedule="zb-h1")
    assert any(note.startswith("assumed: weight gradients take 33 % to 50 %") for note in done.notes)
    row = done.predictions.row(0, named=True)
    assert row["most_gain_ns"] > 1.1 * row["gain_ns"] > 0


def test_a_picture_of_another_order_has_its_waits(recorded: tuple[Path, float], tmp_path: Path) -> None:
    nsys_pp.whatif(recorded[0], layout="pp=4,dp=2", schedule="gpipe").draw(tmp_path / "whatif.svg")
    groups = re.findall(
        r'<g id="bubbles-(message|collective)">(.*?)</g>', (tmp_path / "whatif.svg").read_text(), re.S
    )
    # the measured lanes know the peers of each: only the replayed ones have a wait of both
    assert {cause for cause, paths in groups if paths.strip()} == {"message", "collective"}


def test_stages_of_equal_compute_gain_what_equal_costs_gain(tmp_path: Path) -> None:
    costs = "--pp 2 --steps 3 --micro-batches 6 --layers 1 --names megatron --seed 62 --stage-costs"
    steps = []
    for name, values in (("apart", "1.3,0.9"), ("equal", "1.1,1.1")):
        simulate.main([str(tmp_path / name), *costs.split(), values])
        steps.append(mean_step(Truth(tmp_path / name).table("steps")))
    for asked in ({"balance": True}, {}):  # without any, all that gain
        found = nsys_pp.whatif(tmp_path / "apart", layout="pp=2", **asked).predictions  # type: ignore[arg-type]
        assert found.filter(change="balance")["gain_ns"].item() == pytest.approx(steps[0] - steps[1], rel=0.1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"schedule": "dualpipev"}, "needs 8 micro-batches"),
        ({"schedule": "zb-h1", "recorded_schedule": "gpipe"}, "no other order of jobs can be predicted"),
    ],
)
def test_an_order_that_cannot_be_is_refused(
    recorded: tuple[Path, float], asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(MissingDataError, match=words):
        nsys_pp.whatif(recorded[0], layout="pp=4,dp=2", **asked)


def test_nothing_is_predicted_without_all_ranks(recorded: tuple[Path, float]) -> None:
    reports = sorted(recorded[0].rglob("*.sqlite"))
    with (
        pytest.warns(UserWarning, match="have no report"),
        pytest.raises(MissingDataError, match="can be predicted"),
    ):
        nsys_pp.whatif(reports[:-2], layout="pp=4,dp=2", schedule="gpipe")


def test_a_pair_has_each_rank_as_measured_and_as_replayed(
    recorded: tuple[Path, float], tmp_path: Path
) -> None:
    done = nsys_pp.whatif(recorded[0], layout="pp=4,dp=2", scale=["stage=1:0.5"])
    for name in ("whatif.svg", "whatif.pftrace"):
        done.draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
    text = (tmp_path / "whatif.svg").read_text()
    assert "rank 0, replayed" in text
    assert "scale stage=1:0.5: " in text


def test_a_trace_holds_both_runs(recorded: tuple[Path, float], tmp_path: Path, importer: Importer) -> None:
    trace, layout = tmp_path / "whatif.pftrace", "pp=4,dp=2"
    nsys_pp.whatif(recorded[0], layout=layout, scale=["stage=1:1"]).draw(trace)  # as recorded
    slices = slices_by_machine(importer, trace).filter(pl.col("path").str.ends_with("/jobs"))
    training = nsys_pp.pipeline(recorded[0], layout=layout).training
    jobs = training.jobs.filter(~pl.col("kind").is_in(MESSAGE_KINDS)).with_columns(
        start=pl.coalesce("compute_start_ns", "start_ns"), end=pl.coalesce("compute_end_ns", "end_ns")
    )
    lengths = jobs.select(pl.col("end") - pl.col("start")).to_series().sort()
    for machine, apart_ns in (("measured", 0), ("replayed", 50_000)):
        drawn = slices.filter(machine=machine)["dur"].sort()
        assert len(drawn) == len(lengths)
        assert np.abs(drawn.to_numpy() - lengths.to_numpy()).max() <= apart_ns
    arrows = training.transfers.filter(pl.col("send_start_ns") + 1 < pl.col("receive_end_ns"))
    assert importer.query(None, "select count(*) as n from flow")["n"].item() == 2 * len(arrows)
