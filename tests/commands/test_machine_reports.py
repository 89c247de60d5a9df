"""Reports with all processes of a machine and no rank of any: places in a layout, or the reason against them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import nsys_pp
from fixtures.simulate import main as simulate
from nsys_pp.frames.training import Training
from tests.training.expected_training import expected_training

SMALL = "--steps 2 --layers 1 --per machine --brief-truth"

pytestmark = pytest.mark.usefixtures("reports_read_once")


def run_with_layout(folder: Path, options: str, layout: str) -> tuple[Training, list[str]]:
    simulate([str(folder), *SMALL.split(), *options.split()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nsys_pp.pipeline([folder], layout=layout).training
    return found, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("options", "layout", "order"),
    [
        ("--pp 4 --machines 1 --gpus 4", "pp=4", "by GPU order"),
        ("--pp 4", "pp=4", "by machine and GPU order"),
        ("--pp 2 --tp 2 --launcher none --names megatron", "pp=2,tp=2", "by machine and GPU order"),
    ],
)
def test_ranks_follow_machines_and_gpus(options: str, layout: str, order: str, tmp_path: Path) -> None:
    found, warned = run_with_layout(tmp_path, options, layout)
    place = ("rank", "stage", "replica", "tensor")
    true = expected_training(tmp_path).lanes
    assert found.lanes.select(place).sort("rank").equals(true.select(place).sort("rank"))
    assert found.lanes["stage_source"].unique().to_list() == ["--layout"]
    assert any(order in note for note in found.notes)
    assert not warned


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "layout", "reason"),
    [
        ("--pp 4 --machines node9,node1", "pp=4", "it contradicts the first forwards"),
        (
            "--pp 2 --dp 4 --machines 4 --machine-ranks 3,1,2,2",
            "pp=2,dp=4",
            "several machines have the same stage",
        ),
    ],
)
def test_an_uncertain_order_is_not_used(options: str, layout: str, reason: str, tmp_path: Path) -> None:
    """Stages are found by the first forwards then."""
    found, _ = run_with_layout(tmp_path, options, layout)
    assert any("`--layout` is not used" in note and reason in note for note in found.notes)
    assert found.lanes["rank"].null_count() == len(found.lanes)
    assert found.lanes["replica"].null_count() == len(found.lanes)
    places = ("machine", "gpu", "stage")
    true = expected_training(tmp_path).lanes
    assert found.lanes.select(places).sort(places).equals(true.select(places).sort(places))


def test_processes_without_a_place_are_named(tmp_path: Path) -> None:
    _, warned = run_with_layout(tmp_path, "--pp 2 --machines 1 --gpus 2", "pp=4")
    assert len(warned) == 1
    assert "`--layout` cannot place 2 GPU processes of" in warned[0]
    assert "one report has several processes" in warned[0]
