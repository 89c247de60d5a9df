"""What lanes did and waited for, against the simulator's truth, and as arithmetic on random stretches."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import simulate
from nsys_pp.frames.clock import ANCHORS
from nsys_pp.frames.conform import build_schema, conform
from nsys_pp.frames.training import COMPUTE_SEGMENTS, COVER, LANE_STATES, RUN_JOBS, RUN_STEPS, TRANSFERS
from nsys_pp.training.run.bubbles import build_lane_states, measure_cover
from nsys_pp.training.run.transfers import pair_messages
from tests.training.simulated_reports import SimulatedRun, read_simulated_run

SMALL = "--steps 2 --layers 1 --pp 4 --micro-batches 8 --brief-truth"
LENGTH = pl.col("end_ns") - pl.col("start_ns")


def lane_states_of(run: SimulatedRun) -> pl.DataFrame:
    jobs = run.jobs
    transfers, _ = pair_messages(lanes=run.lanes, messages=run.messages, jobs=jobs)
    return build_lane_states(
        lanes=run.lanes,
        steps=conform(run.steps, RUN_STEPS).sort("step", "lane"),
        compute_segments=run.compute_segments,
        jobs=jobs,
        data_jobs=run.data_jobs.select("lane", host_start_ns="start_ns", host_end_ns="end_ns"),
        transfers=transfers,
        anchors=run.anchors,
    )


def totals(lane_states: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("position", "cause").cast(pl.String)
    return lane_states.filter(pl.col("cause") != "compute").with_columns(text).group_by(
        "lane", "step", "position", "cause"
    ).agg(LENGTH.sum().alias("ns")).sort("lane", "step", "position", "cause")  # fmt: skip


RUNS = {
    "1f1b, data come late": "--stall 10=15 --autograd none",
    "gpipe, a slow host": "--schedule gpipe --host-bound 11=8 --recompute",
    "interleaved, free running": "--schedule interleaved --free-running",
    "zero bubble, a slow link": "--schedule zb-h1 --slow-link 0,1=5 --grouped-messages",
    "folded, graphs": "--schedule dualpipev --graphs node",
    "buffered": "--buffered-bytes 100000000 --free-running",
    "collectives": "--pp 2 --tp 2 --dp 2 --sequence-parallel --sharded-optimizer",
    "slow rank, communicators told": "--pp 2 --tp 2 --slow-rank 1=1.5 --schema 3.25.0 --nccl-payload",
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_bubbles_by_position_and_cause_equal_the_truth_to_the_nanosecond(
    tmp_path: Path, options: str
) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), *options.split()])
    run = read_simulated_run(tmp_path)
    lane_states = lane_states_of(run)
    assert lane_states.schema == LANE_STATES
    assert lane_states.equals(lane_states.sort("lane", "start_ns"))
    assert totals(lane_states).equals(totals(run.lane_states))


def test_a_wait_names_the_lane_that_came_last(tmp_path: Path) -> None:
    simulate.main([str(tmp_path), *SMALL.split(), "--schedule", "gpipe"])
    waits = lane_states_of(read_simulated_run(tmp_path)).filter(pl.col("cause") == "message_wait")
    own = waits.group_by("lane", "step", maintain_order=True).agg(
        first=pl.col("waits_for").first().cast(pl.Int64), last=pl.col("waits_for").last().cast(pl.Int64)
    )
    before, after = own.filter(pl.col("lane") > 0), own.filter(pl.col("lane") < 3)
    assert len(before) == len(after) == 6
    assert (before["first"] == before["lane"].cast(pl.Int64) - 1).all()
    assert (after["last"] == after["lane"].cast(pl.Int64) + 1).all()


def compute_segments_of(rows: list[tuple[int, int, int, str | None, int, int]]) -> pl.DataFrame:
    names = ["lane", "start_ns", "end_ns", "need", "need_start_ns", "need_end_ns"]
    own = {n: t for n, t in COMPUTE_SEGMENTS.items() if n not in ("process_key", "device_id")}
    schema = build_schema({"lane": pl.UInt32, **own})
    frame = pl.DataFrame(rows, schema={name: schema[name] for name in names}, orient="row")
    filled = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in names]
    return frame.with_columns(filled).with_columns(compute_ns=LENGTH // 2).select(list(schema))


def steps_of(rows: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["lane", "step", "start_ns", "end_ns"], orient="row")
    return frame.with_columns(is_partial=pl.lit(False)).pipe(conform, RUN_STEPS).sort("step", "lane")


def plain_lane_states(
    compute_segments: pl.DataFrame, steps: pl.DataFrame, data: list[tuple[int, int, int]]
) -> pl.DataFrame:
    lanes = pl.DataFrame(
        {"lane": [0, 1], "bound_ns": [0, 0]}, schema={"lane": pl.UInt32, "bound_ns": pl.Int64}
    )
    return build_lane_states(
        lanes=lanes,
        steps=steps,
        compute_segments=compute_segments,
        jobs=RUN_JOBS.to_frame(),
        data_jobs=pl.DataFrame(
            data, schema={"lane": pl.UInt32, "host_start_ns": pl.Int64, "host_end_ns": pl.Int64}, orient="row"
        ),
        transfers=TRANSFERS.to_frame(),
        anchors=ANCHORS.to_frame().drop("process_key", "device_id").with_columns(lane=pl.lit(0, pl.UInt32)),
    )


Drawn = tuple[list[Any], list[Any], list[Any]]


@st.composite
def busy_lanes(draw: st.DrawFn) -> Drawn:
    """Draw steps that follow each other on two lanes, stretches that lie in them, and times of loading data."""
    steps: list[Any] = []
    compute_segments: list[Any] = []
    data: list[Any] = []
    numbers = st.integers(0, 1000)
    for lane in (0, 1):
        edges = draw(st.lists(numbers, min_size=2, max_size=4, unique=True).map(sorted))
        steps += [(lane, n, a, b) for n, (a, b) in enumerate(pairwise(edges))]
        for _, _, first, last in [step for step in steps if step[0] == lane]:
            inside = draw(st.lists(st.integers(first, last), max_size=6, unique=True).map(sorted))
            for a, b in zip(inside[::2], inside[1::2], strict=False):
                need = draw(st.sampled_from([None, "message", "collective", "copy"]))
                begin, length = draw(numbers), draw(st.integers(0, 200))
                compute_segments.append((lane, a, b, need, begin, begin + length))
        data += [
            (lane, a, a + b) for a, b in draw(st.lists(st.tuples(numbers, st.integers(0, 300)), max_size=3))
        ]
    return steps, compute_segments, data


@settings(deadline=None, max_examples=60)
@given(busy_lanes())
def test_pieces_tile_every_step_and_compute_is_the_stretches(drawn: Drawn) -> None:
    spans, rows, data = drawn
    steps, compute_segments = steps_of(spans), compute_segments_of(rows)
    lane_states = plain_lane_states(compute_segments, steps, data)
    assert lane_states.schema == LANE_STATES
    for lane, step, start, end in spans:
        own = lane_states.filter(pl.col("lane") == lane, pl.col("step") == step)
        assert own["start_ns"].to_list() == [start, *own["end_ns"][:-1]]
        assert own["end_ns"][-1] == end
        assert (own["start_ns"] < own["end_ns"]).all()
    compute = lane_states.filter(pl.col("cause") == "compute").group_by("lane").agg(LENGTH.sum()).sort("lane")
    assert compute.equals(compute_segments.group_by("lane").agg(LENGTH.sum()).sort("lane"))
    cover = measure_cover(steps=steps, compute_segments=compute_segments)
    assert cover.schema == COVER
    assert len(cover) == len(steps)
    assert cover.select(pl.sum_horizontal("compute_ns", "pause_ns").sum()).item() == compute["end_ns"].sum()
    assert cover["compute_ns"].sum() == compute_segments["compute_ns"].sum()


def test_loading_data_is_only_what_nothing_else_explains() -> None:
    compute_segments = compute_segments_of([(0, 0, 10, None, 0, 0), (0, 100, 110, "copy", 40, 60)])
    lane_states = plain_lane_states(
        compute_segments, steps_of([(0, 0, 0, 200)]), [(0, 20, 30), (0, 25, 50), (0, 150, 500)]
    )
    assert lane_states.select(pl.col("cause").cast(pl.String), "start_ns", "end_ns").rows() == [
        ("compute", 0, 10),
        ("host", 10, 20),
        ("data", 20, 40),
        ("copy", 40, 60),
        ("host", 60, 100),
        ("compute", 100, 110),
        ("idle", 110, 150),
        ("data", 150, 200),
    ]


def test_a_step_without_computation_is_idle() -> None:
    lane_states = plain_lane_states(compute_segments_of([]), steps_of([(0, 0, 5, 9)]), [])
    assert lane_states.select(pl.col("cause").cast(pl.String), "start_ns", "end_ns").rows() == [
        ("idle", 5, 9)
    ]


def test_no_steps_no_pieces() -> None:
    assert plain_lane_states(compute_segments_of([(0, 0, 5, None, 0, 0)]), RUN_STEPS.to_frame(), []).equals(
        LANE_STATES.to_frame()
    )
