"""Contracts: a frame that does not fit is refused with the name of the contract and all offending columns."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.frames.clock import (
    CLOCK,
    describe_groups,
    is_comparable,
    keep_comparable,
    list_comparable_steps,
    number_comparable,
    relative_bound,
)
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.ids import list_process_keys, pid, process_key, tid
from nsys_pp.frames.training import GATHERED_FRAMES, LANE_FRAMES, LANE_KEYS

STEPS = build_schema({"step": pl.Int64, "name": pl.Categorical()}, name="STEPS")


@pytest.mark.parametrize(
    ("frame", "rows"),
    [
        (
            pl.DataFrame({"extra": [1.5], "name": ["step 3"], "step": pl.Series([3], dtype=pl.UInt8)}),
            [(3, "step 3")],
        ),
        (STEPS.to_frame(), []),
    ],
    ids=["one row", "empty"],
)
def test_a_frame_gets_the_columns_and_types_of_the_schema(
    frame: pl.DataFrame, rows: list[tuple[int, str]]
) -> None:
    fitted = conform(frame, STEPS)
    assert (fitted.schema, fitted.rows()) == (STEPS, rows)


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


def test_frames_by_lane_have_a_lane_instead_of_a_device() -> None:
    assert LANE_FRAMES.keys() == GATHERED_FRAMES.keys()
    for name, schema in LANE_FRAMES.items():
        assert "lane" in schema
        assert not {*LANE_KEYS} & {*schema}
        assert {*GATHERED_FRAMES[name]} == {*schema, *LANE_KEYS} - {"lane"}


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 24) - 1))
def test_keys_contain_what_they_are_built_of(host: int, vm: int, process_id: int, thread_id: int) -> None:
    process = pl.lit(list_process_keys(pl.DataFrame({"host": [host], "vm": [vm], "pid": [process_id]})))
    thread = process + thread_id
    expected = (host << 56 | vm << 48 | process_id << 24 | thread_id).to_bytes(8, "big")
    row = pl.select(
        process=process, thread=thread, owner=process_key(thread), pid=pid(thread), tid=tid(thread)
    ).row(0, named=True)
    assert (row["thread"], row["owner"]) == (int.from_bytes(expected, "big", signed=True), row["process"])
    assert (row["pid"], row["tid"]) == (process_id, thread_id)


_SCHEMA = {"lane": pl.UInt32, "clock": pl.UInt32, "clock_group": pl.UInt32, "bound_ns": pl.Int64}


def draw_lanes(seed: int) -> pl.DataFrame:
    draw = random.Random(seed)
    clocks = [
        (clock, draw.choice([0, 1, None]), draw.choice([None, 0, 5, 70]))
        for clock in range(draw.randrange(1, 6))
    ]
    rows = [(lane, *draw.choice(clocks)) for lane in range(draw.randrange(1, 9))]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def relate(a: dict[str, int | None], b: dict[str, int | None]) -> tuple[bool, int | None]:
    """Return whether two lanes are comparable, and the bound of their times relative to each other."""
    if a["clock"] == b["clock"]:
        return True, 0
    bound = None if a["bound_ns"] is None or b["bound_ns"] is None else a["bound_ns"] + b["bound_ns"]
    same_group = a["clock_group"] is not None and a["clock_group"] == b["clock_group"]
    return same_group and bound is not None, bound


def test_relations_are_those_of_plain_loops() -> None:
    for seed in range(200):
        lanes = draw_lanes(seed)
        rows = list(lanes.iter_rows(named=True))
        expected = [relate(a, b) for a in rows for b in rows]
        pairs = lanes.join(lanes.select(pl.all().name.suffix("_of_other")), how="cross")
        related = pairs.select(is_=is_comparable("_of_other"), bound=relative_bound("_of_other"))
        assert related.rows() == expected
        kept = keep_comparable(pairs.select("lane", "lane_of_other"), lanes, "lane", "lane_of_other")
        assert len(kept) == sum(comparable for comparable, _ in expected)
        sets = number_comparable(lanes).to_list()
        assert [a == b for a in sets for b in sets] == [comparable for comparable, _ in expected]
        assert set(sets) == set(range(len(set(sets))))


def test_steps_are_comparable_if_all_their_lanes_are() -> None:
    lanes = pl.DataFrame(
        [(0, 0, 0, 1), (1, 1, 0, 2), (2, 2, 1, 3), (3, 3, 0, None)], schema=_SCHEMA, orient="row"
    )
    ran = [(5, 0), (5, 1), (6, 0), (6, 2), (7, 2), (8, 1), (8, 3), (9, 3)]
    steps = pl.DataFrame(ran, schema={"step": pl.Int64, "lane": pl.UInt32}, orient="row")
    assert list_comparable_steps(steps, lanes)["step"].to_list() == [5, 7, 9]
    assert list_comparable_steps(steps.clear(), lanes).is_empty()


def test_no_lanes_have_no_relations() -> None:
    lanes = pl.DataFrame(schema=_SCHEMA)
    assert number_comparable(lanes).is_empty()
    assert describe_groups(lanes["clock_group"]) == ""
    assert set(CLOCK) < set(lanes.columns)
