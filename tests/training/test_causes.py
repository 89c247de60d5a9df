"""Lane states, last members of collectives and data loading, against truth and definitions."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.frames.clock import CLOCK, SKEW_NS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import (
    COVER,
    LANE_FRAMES,
    LANE_STATES,
    LANES,
    RUN_JOBS,
    RUN_STEPS,
    TRANSFERS,
)
from nsys_pp.training.causes import build_lane_states, find_last_members, measure_cover
from nsys_pp.training.messages import pair_messages
from tests.training.expected_training import SimulatedRun, fill_columns
from tests.training.test_messages import record_run

LENGTH = pl.col("end_ns") - pl.col("start_ns")


def lane_states_of(run: SimulatedRun) -> pl.DataFrame:
    jobs, steps = run.jobs, conform(run.steps, RUN_STEPS).sort("step", "lane")
    transfers, _ = pair_messages(lanes=run.lanes, messages=run.messages, steps=steps, jobs=jobs)
    return build_lane_states(
        lanes=run.lanes,
        steps=steps,
        compute_segments=run.compute_segments,
        waits=run.waits,
        jobs=jobs,
        data_jobs=run.data_jobs,
        messages=run.messages,
        transfers=transfers,
        anchors=run.anchors,
    )


def errors(found: pl.DataFrame, true: pl.DataFrame) -> pl.DataFrame:
    """Return the errors of the time of each cause of bubbles, by lane, step and position."""
    keys = ["lane", "step", "position", "cause"]
    sums = [
        states.filter(pl.col("cause") != "compute")
        .with_columns(pl.col("position", "cause").cast(pl.String))
        .group_by(keys)
        .agg(ns=LENGTH.sum())
        for states in (found, true)
    ]
    return (
        sums[0]
        .join(sums[1], on=keys, how="full", coalesce=True, suffix="_true")
        .select(*keys, error_ns=(pl.col("ns").fill_null(0) - pl.col("ns_true").fill_null(0)).abs())
    )


RUNS = {
    "1f1b, data come late": "--stall 10=15 --autograd none",
    "gpipe, a slow host": "--schedule gpipe --host-bound 11=8 --recompute",
    "interleaved, free running": "--schedule interleaved --free-running",
    "zero bubble, a slow link": "--schedule zb-h1 --slow-link 0,1=5 --grouped-messages",
    "folded, graphs": "--schedule dualpipev --graphs node",
    "buffered": "--buffered-bytes 100000000 --free-running",
    "small operations and collectives after a message": (
        "--pp 2 --tp 2 --small-ops 3 --lead-collectives 2 --events all"
    ),
    "records of events are not traced": "--small-ops 2 --events waits --free-running --zero-grad none",
    "a deep launch queue": "--pace-us 2 --free-running --small-ops 1 --schedule gpipe",
    "slow rank, communicators told": "--pp 2 --tp 2 --slow-rank 1=1.5 --schema 3.25.0 --nccl-payload",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_bubbles_by_position_and_cause_equal_the_truth_to_the_nanosecond(
    tmp_path: Path, options: str
) -> None:
    run = record_run(tmp_path, options)
    lane_states = lane_states_of(run)
    assert lane_states.schema == LANE_STATES
    assert lane_states.equals(lane_states.sort("lane", "start_ns"))
    assert errors(lane_states, run.lane_states)["error_ns"].max() == 0


def test_a_wait_names_the_lane_that_came_last(tmp_path: Path) -> None:
    waits = lane_states_of(record_run(tmp_path, "--schedule gpipe")).filter(pl.col("cause") == "message_wait")
    own = waits.group_by("lane", "step", maintain_order=True).agg(
        first=pl.col("waits_for").first().cast(pl.Int64), last=pl.col("waits_for").last().cast(pl.Int64)
    )
    before, after = own.filter(pl.col("lane") > 0), own.filter(pl.col("lane") < 3)
    assert len(before) == len(after) == 6
    assert (before["first"] == before["lane"].cast(pl.Int64) - 1).all()
    assert (after["last"] == after["lane"].cast(pl.Int64) + 1).all()


def waits_of(rows: list[tuple[int, int, int, str | None, str | None, int, int]]) -> pl.DataFrame:
    names = ["lane", "start_ns", "end_ns", "cause", "need", "need_start_ns", "need_end_ns"]
    frame = pl.DataFrame(rows, schema={name: LANE_FRAMES["waits"][name] for name in names}, orient="row")
    return frame.with_columns(step=0, need_op_id=pl.lit(None)).pipe(conform, LANE_FRAMES["waits"])


def segments_of(rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    names = ["lane", "start_ns", "end_ns"]
    frame = pl.DataFrame(
        rows, schema={name: LANE_FRAMES["compute_segments"][name] for name in names}, orient="row"
    )
    return frame.with_columns(step=0, compute_ns=LENGTH // 2, op_count=1).pipe(
        conform, LANE_FRAMES["compute_segments"]
    )


def steps_of(*spans: tuple[int, int]) -> pl.DataFrame:
    frame = pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row")
    return frame.with_columns(lane=pl.int_range(pl.len()), step=0, is_partial=False).pipe(
        fill_columns, RUN_STEPS
    )


def transfers_of(rows: list[tuple[int, int, int, int, int, int]]) -> pl.DataFrame:
    names = ["sender", "send_start_ns", "send_end_ns", "receiver", "receive_start_ns", "receive_end_ns"]
    filled = {name: pl.lit(None) for name in TRANSFERS if name not in names}
    frame = pl.DataFrame(rows, schema={name: TRANSFERS[name] for name in names}, orient="row")
    return frame.with_columns(**filled).with_columns(is_buffered=False).pipe(conform, TRANSFERS)


def states_of(
    waits: pl.DataFrame,
    segments: pl.DataFrame,
    steps: pl.DataFrame,
    transfers: pl.DataFrame,
    data: list[tuple[int, int, int]],
    bound: int | None = 0,
) -> pl.DataFrame:
    lanes = pl.DataFrame({"lane": [0, 1], "clock": [0, 1], "clock_group": 0, "bound_ns": bound}).cast(
        {name: LANES[name] for name in ("lane", *CLOCK)}
    )
    loads = {"lane": pl.UInt32, "host_start_ns": pl.Int64, "host_end_ns": pl.Int64}
    return build_lane_states(
        lanes=lanes,
        steps=steps,
        compute_segments=segments,
        waits=waits,
        jobs=RUN_JOBS.to_frame(),
        data_jobs=pl.DataFrame(data, schema=loads, orient="row"),
        messages=LANE_FRAMES["messages"].to_frame(),
        transfers=transfers.with_columns(bound_ns=pl.lit(bound and 2 * bound, TRANSFERS["bound_ns"])),
        anchors=LANE_FRAMES["anchors"].to_frame(),
    )


def causes_of(states: pl.DataFrame) -> list[tuple[str, int, int]]:
    return states.select(pl.col("cause").cast(pl.String), "start_ns", "end_ns").rows()


@st.composite
def gaps(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Draw a step of lane 0: segments, waits between them, messages of lane 1, and times of loading data."""
    edges = draw(st.lists(st.integers(0, 300), min_size=2, max_size=14, unique=True).map(sorted))
    waits: list[Any] = []
    segments: list[Any] = []
    transfers: list[Any] = []
    for start, end in pairwise(edges):
        kind = draw(st.sampled_from(["compute", "host", "copy", "unknown", "idle", "message", "collective"]))
        if kind == "compute":
            segments.append((0, start, end))
        elif kind in ("message", "collective"):
            begin = draw(st.integers(start - 20, start))
            waits.append((0, start, end, None, kind, begin, end))
            if kind == "message" and draw(st.booleans()):
                sent = draw(st.integers(start - 40, end + 40))
                transfers.append((1, sent, max(sent, end), 0, begin, end))
        else:
            waits.append((0, start, end, kind, None, None, None))
    numbers = st.tuples(st.integers(0, 300), st.integers(0, 80))
    data = [(0, first, first + length) for first, length in draw(st.lists(numbers, max_size=3))]
    return waits, segments, transfers, data


def cause_at(time: int, waits: list[Any], transfers: list[Any], data: list[Any]) -> str:
    for _, start, end, cause, need, begin, until in waits:
        if start <= time < end:
            if need == "collective":
                return "collective"  # no other member is known
            if need == "message":
                sent = [row[1] for row in transfers if (row[4], row[5]) == (begin, until)]
                if not sent:
                    return "message"
                return "message_transfer" if time >= sent[0] else "message_wait"
            is_free = cause in ("host", "idle") and any(first <= time < last for _, first, last in data)
            return "data" if is_free else str(cause)
    return "compute"


@settings(deadline=None, max_examples=150)
@given(gaps())
def test_every_moment_of_a_step_has_its_cause(
    drawn: tuple[list[Any], list[Any], list[Any], list[Any]],
) -> None:
    waits, segments, transfers, data = drawn
    times = [time for row in (*waits, *segments) for time in row[1:3]]
    step = min(times), max(times)
    states = states_of(waits_of(waits), segments_of(segments), steps_of(step), transfers_of(transfers), data)
    assert states.schema == LANE_STATES
    found = causes_of(states)
    assert [start for _, start, _ in found] == [step[0], *(end for _, _, end in found[:-1])]
    assert found[-1][2] == step[1]
    at = {time: cause for cause, start, end in found for time in range(start, end)}
    assert at == {time: cause_at(time, waits, transfers, data) for time in range(*step)}
    late = states.filter(pl.col("waits_for").is_not_null())
    assert (late["waits_for"] == 1).all()
    assert (late["cause"] == "message_wait").all()
    cover = measure_cover(steps=steps_of(step), compute_segments=segments_of(segments))
    assert cover.schema == COVER
    assert cover.select(pl.sum_horizontal("compute_ns", "pause_ns").sum()).item() == sum(
        end - start for _, start, end in segments
    )


def test_a_message_is_split_if_the_clocks_are_known_well_enough() -> None:
    waits, transfers = waits_of([(0, 0, 90, None, "message", 0, 90)]), transfers_of([(1, 30, 90, 0, 0, 90)])
    split = ["message_wait", "message_transfer"]
    for bound, causes in ((0, split), (11, split), (12, ["message"]), (None, ["message"])):
        found = states_of(waits, segments_of([]), steps_of((0, 90)), transfers, [], bound)
        assert [cause for cause, *_ in causes_of(found)] == causes


def test_numbers_of_steps_that_begin_again_are_no_order() -> None:
    steps = pl.concat(
        [steps_of(span).with_columns(step=step) for span, step in (((50, 90), 10), ((0, 50), 11))]
    )
    segments = segments_of([(0, 5, 20), (0, 60, 80)])
    waits = waits_of([(0, 20, 50, "host", None, 0, 0), (0, 80, 90, "idle", None, 0, 0)])
    found = states_of(
        waits.with_columns(step=pl.Series([11, 10])),
        segments,
        steps.pipe(conform, RUN_STEPS),
        TRANSFERS.to_frame(),
        [],
    )
    assert causes_of(found) == [("compute", 5, 20), ("host", 20, 50), ("compute", 60, 80), ("idle", 80, 90)]
    assert found["step"].to_list() == [11, 11, 10, 10]


COUNT = 60

SPACING_NS = 1_000_000


def build_lanes(bounds_ns: list[int | None]) -> pl.DataFrame:
    """Return two lanes of each of two machines, with the bounds of these."""
    return fill_columns(
        pl.DataFrame(
            [
                {"lane": lane, "clock": lane // 2, "clock_group": 0, "bound_ns": bounds_ns[lane // 2]}
                for lane in range(4)
            ]
        ),
        LANES,
    )


def build_anchors(apart_ns: int) -> pl.DataFrame:
    """Return collectives of the two lanes of each machine; those of the second end later by `apart_ns`.

    The second lane of each machine begins last.
    """
    chance = random.Random(1)
    rows = []
    for number in range(COUNT):
        for machine in (0, 1):
            end = 10_000_000 + number * SPACING_NS + machine * apart_ns + chance.randint(0, 100_000)
            for member in (0, 1):
                lane = 2 * machine + member
                begin = end - 300_000 + 200_000 * member
                rows.append({"lane": lane, "start_ns": begin, "end_ns": end + member * 2_000})
    anchors = pl.DataFrame(rows).with_columns(kind=pl.lit("collective"), name=pl.lit("AllReduce"))
    return fill_columns(anchors, LANE_FRAMES["anchors"])


@pytest.mark.parametrize("bounds_ns", [[0, 5_000], [0, 5_000_000], [0, None]])
@pytest.mark.parametrize("apart_ns", [300_000, 480_000])
def test_members_are_those_that_end_together_however_poorly_clocks_are_known(
    bounds_ns: list[int | None], apart_ns: int
) -> None:
    anchors = build_anchors(apart_ns)
    needed = anchors.select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
    found = find_last_members(needed, lanes=build_lanes(bounds_ns), anchors=anchors)
    assert len(found) == 4 * COUNT
    partners = {0: 1, 1: 0, 2: 3, 3: 2}
    assert all(partners[lane] == other for lane, other in found.select("lane", "waits_for").iter_rows())


def test_buckets_that_follow_each_other_soon_are_of_all_machines() -> None:
    """The bound of the clocks is as long as a bucket: the one before and the one after are near, too."""
    chance = random.Random(3)
    rows = [
        {
            "lane": lane,
            "start_ns": number * 77_000,
            "end_ns": number * 77_000 + 75_000 + chance.randrange(2_000),
        }
        for number in range(36)
        for lane in range(4)
    ]
    anchors = pl.DataFrame(rows).with_columns(kind=pl.lit("collective"), name=pl.lit("ReduceScatter"))
    anchors = fill_columns(anchors, LANE_FRAMES["anchors"])
    needed = anchors.filter(lane=0).select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
    late = pl.when(pl.col("lane") == 3).then(pl.col("start_ns") + 30_000).otherwise("start_ns")
    anchors = anchors.with_columns(start_ns=late)
    assert find_last_members(needed, lanes=build_lanes([28_000, 28_000]), anchors=anchors).select(
        "need_start_ns", "peer_start_ns", "waits_for"
    ).rows() == [(start, start + 30_000, 3) for start in needed["need_start_ns"].sort()]


def _match_in_loops(events: list[tuple[int, int, int]], own: int, ordinal: int, other: int) -> int | None:
    """Return the start of the collective of another lane that ends with one, else of the shifted ordinal."""
    mine, its = ([event[1:] for event in events if event[0] == lane] for lane in (own, other))

    def shift_of(at: int) -> int | None:
        end = mine[at][1]
        nearest = max(range(len(its)), key=lambda to: (-abs(its[to][1] - end), to))
        return nearest - at if abs(its[nearest][1] - end) <= SKEW_NS else None

    exact = shift_of(ordinal)
    if exact is not None:
        return its[ordinal + exact][0]
    around = [
        next((shift for at in side if (shift := shift_of(at)) is not None), None)
        for side in (range(ordinal - 1, -1, -1), range(ordinal + 1, len(mine)))
    ]
    known = {shift for shift in around if shift is not None}
    if len(known) != 1 or not 0 <= (to := ordinal + known.pop()) < len(its):
        return None
    (start, end), (begin, until) = its[to], mine[ordinal]
    return start if start - SKEW_NS <= until and end + SKEW_NS >= begin else None


def test_the_last_member_is_that_of_plain_loops() -> None:
    """Members of a communicator on one clock; some end much later, and some lanes lack collectives."""
    chance = random.Random(11)
    for _ in range(20):
        events = []
        for number in range(12):
            end = number * 400_000
            for lane in range(4):
                if chance.random() < 0.1:
                    continue
                late = chance.choice([0, 0, 0, 60_000, 150_000])
                start = end - chance.randrange(10_000, 250_000)
                events.append((lane, start, end + late + chance.randrange(3_000)))
        events.sort(key=lambda event: event[1])
        anchors = fill_columns(
            pl.DataFrame(
                [{"lane": lane, "start_ns": start, "end_ns": end} for lane, start, end in events]
            ).with_columns(kind=pl.lit("collective"), name=pl.lit("AllReduce"), communicator=pl.lit(7)),
            LANE_FRAMES["anchors"],
        )
        lanes = build_lanes([0, 0]).with_columns(clock=pl.lit(0, pl.UInt32))
        needed = anchors.select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
        found = find_last_members(needed, lanes=lanes, anchors=anchors)
        expected = []
        for lane in range(4):
            for ordinal, (_, start, end) in enumerate([event for event in events if event[0] == lane]):
                matched = {
                    other: began
                    for other in range(4)
                    if other != lane
                    if (began := _match_in_loops(events, lane, ordinal, other)) is not None
                }
                if matched:
                    last = max(matched, key=lambda other: (matched[other], -other))
                    expected.append((lane, start, end, matched[last], last, len(matched) == 3))
        columns = ["lane", "need_start_ns", "need_end_ns", "peer_start_ns", "waits_for", "is_complete"]
        assert sorted(found.select(columns).rows()) == sorted(expected)
