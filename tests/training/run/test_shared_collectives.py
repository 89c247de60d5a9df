"""Members of collectives: known and poorly known clocks."""

from __future__ import annotations

import random

import polars as pl
import pytest

from nsys_pp.frames.clock import SKEW_NS
from nsys_pp.frames.conform import conform
from nsys_pp.frames.training import LANE_ANCHORS, LANES
from nsys_pp.training import collectives as shared_collectives
from nsys_pp.training.collectives import find_last_members

COUNT = 60
SPACING_NS = 1_000_000


def _fill(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Add the columns that a frame lacks as nulls."""
    lacking = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
    return conform(frame.with_columns(lacking), schema)


def build_lanes(bounds_ns: list[int | None]) -> pl.DataFrame:
    """Return two lanes of each of two machines, with the bounds of these."""
    return _fill(
        pl.DataFrame(
            [
                {"lane": lane, "clock": lane // 2, "clock_group": 0, "bound_ns": bounds_ns[lane // 2]}
                for lane in range(4)
            ]
        ),
        LANES,
    )


def build_anchors(apart_ns: int, kind: str) -> pl.DataFrame:
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
    anchors = pl.DataFrame(rows).with_columns(kind=pl.lit(kind), name=pl.lit("AllReduce"))
    return _fill(anchors, LANE_ANCHORS)


@pytest.mark.parametrize("kind", ["collective", "send_receive"])
@pytest.mark.parametrize("bounds_ns", [[0, 5_000], [0, 5_000_000], [0, None]])
@pytest.mark.parametrize("apart_ns", [300_000, 480_000])
def test_members_are_those_that_end_together_however_poorly_clocks_are_known(
    bounds_ns: list[int | None], apart_ns: int, kind: str
) -> None:
    anchors = build_anchors(apart_ns, kind)
    needed = anchors.select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
    found = find_last_members(needed, lanes=build_lanes(bounds_ns), anchors=anchors, kind=kind)
    assert len(found) == 4 * COUNT
    partners = {0: 1, 1: 0, 2: 3, 3: 2}
    assert all(partners[lane] == other for lane, other in found.select("lane", "waits_for").iter_rows())


def test_of_members_that_began_together_the_first_lane_is_waited_for() -> None:
    starts = {0: 0, 1: 50_000, 2: 50_000, 3: 50_000}
    rows = [
        {"lane": lane, "start_ns": at * SPACING_NS + begin, "end_ns": at * SPACING_NS + 300_000}
        for at in range(COUNT)
        for lane, begin in starts.items()
    ]
    chance = random.Random(3)
    for _ in range(20):
        chance.shuffle(rows)
        known = pl.DataFrame(rows)
        anchors = _fill(
            known.with_columns(kind=pl.lit("collective"), name=pl.lit("AllReduce"), communicator=pl.lit(7)),
            LANE_ANCHORS,
        )
        needed = anchors.filter(lane=0).select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
        found = find_last_members(needed, lanes=build_lanes([0, 0]), anchors=anchors)
        assert found["waits_for"].to_list() == [1] * COUNT


@pytest.mark.parametrize(("last", "error_ns"), [(1, 0), (2, 7_000)])
def test_the_error_of_a_start_is_that_of_both_clocks(last: int, error_ns: int) -> None:
    """Lanes 0 and 1 are on one clock, 2 on the other; one of these begins last."""
    begins = {0: 0, 1: 10_000, 2: 20_000} | {last: 90_000}
    rows = [
        {"lane": lane, "start_ns": at * SPACING_NS + begin, "end_ns": at * SPACING_NS + 300_000}
        for at in range(COUNT)
        for lane, begin in begins.items()
    ]
    of_communicator = {"kind": "collective", "name": "AllReduce", "communicator": 7}
    anchors = _fill(
        pl.DataFrame(rows).with_columns(pl.lit(value).alias(name) for name, value in of_communicator.items()),
        LANE_ANCHORS,
    )
    needed = anchors.filter(lane=0).select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
    found = find_last_members(needed, lanes=build_lanes([2_000, 5_000]), anchors=anchors)
    assert found.select("waits_for", "bound_ns").rows() == [(last, error_ns)] * COUNT


def _match_in_loops(events: list[tuple[int, int, int]], own: int, ordinal: int, other: int) -> int | None:
    """Return the start of the collective of another lane that ends within the tolerance of one, else that of the shifted ordinal."""
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


@pytest.mark.parametrize("block", [1, 1 << 19])
def test_the_last_member_is_that_of_plain_loops(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of a communicator on one clock; some end much later, and some lanes lack collectives."""
    monkeypatch.setattr(shared_collectives, "_BLOCK_ROWS", block)
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
        rows = [{"lane": lane, "start_ns": start, "end_ns": end} for lane, start, end in events]
        anchors = _fill(
            pl.DataFrame(rows).with_columns(
                kind=pl.lit("collective"), name=pl.lit("AllReduce"), communicator=pl.lit(7)
            ),
            LANE_ANCHORS,
        )
        lanes = build_lanes([0, 0]).with_columns(clock=pl.lit(0, pl.UInt32))
        needed = anchors.select("lane", need_start_ns="start_ns", need_end_ns="end_ns")
        found = find_last_members(needed, lanes=lanes, anchors=anchors)
        expected = []
        for lane in range(4):
            own = [event for event in events if event[0] == lane]
            for ordinal, (_, start, end) in enumerate(own):
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
