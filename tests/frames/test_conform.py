"""Contracts: a frame that does not fit is refused with the name of the contract and all offending columns."""

from __future__ import annotations

import copy
import pickle

import polars as pl
import pytest

from nsys_pp.frames.conform import build_schema, conform, extend_schema
from nsys_pp.frames.report import PROJECTIONS
from nsys_pp.frames.training import GATHERED_FRAMES, LANE_FRAMES, LANE_KEYS

STEPS = build_schema({"step": pl.Int64, "name": pl.Categorical()}, name="STEPS")


def test_a_frame_gets_the_columns_and_types_of_the_schema() -> None:
    frame = pl.DataFrame({"extra": [1.5], "name": ["step 3"], "step": pl.Series([3], dtype=pl.UInt8)})
    fitted = conform(frame, STEPS)
    assert fitted.schema == STEPS
    assert fitted.rows() == [(3, "step 3")]


def test_an_empty_frame_stays_empty() -> None:
    assert conform(STEPS.to_frame(), STEPS).schema == STEPS


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        pytest.param({"step": [1]}, "STEPS: missing column `name` (Categorical)", id="missing"),
        pytest.param({}, "STEPS: missing columns `step` (Int64), `name` (Categorical)", id="several missing"),
        pytest.param(
            {"step": ["x"], "name": ["y"]}, "STEPS: column `step` is String, expected Int64", id="wrong type"
        ),
        pytest.param(
            {"step": ["x"]},
            "STEPS: missing column `name` (Categorical); column `step` is String, expected Int64",
            id="both",
        ),
    ],
)
def test_all_offending_columns_are_named(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(ValueError, match="STEPS") as refused:
        conform(pl.DataFrame(columns), STEPS)
    assert str(refused.value) == message


def test_schemas_know_their_names() -> None:
    assert PROJECTIONS.name == "PROJECTIONS"
    for schema in (pickle.loads(pickle.dumps(STEPS)), copy.deepcopy(STEPS)):
        assert schema == STEPS
        assert schema.name == "STEPS"


def test_an_extended_schema_has_its_own_columns() -> None:
    extended = extend_schema(STEPS, {"lane": pl.UInt32}, name="LANE_STEPS", without=("name",))
    assert (extended.name, extended.names()) == ("LANE_STEPS", ["step", "lane"])
    assert STEPS.names() == ["step", "name"]


def test_frames_by_lane_have_a_lane_instead_of_a_device() -> None:
    assert LANE_FRAMES.keys() == GATHERED_FRAMES.keys()
    for name, schema in LANE_FRAMES.items():
        assert "lane" in schema
        assert not {*LANE_KEYS} & {*schema}
        assert {*GATHERED_FRAMES[name]} == {*schema, *LANE_KEYS} - {"lane"}
