"""The trace as Perfetto's importer reads it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys_pp.write import perfetto_lanes
from nsys_pp.write.colors import COLORS
from nsys_pp.write.drawing import Clock, Drawing, Track
from nsys_pp.write.perfetto import track_uuid, write_perfetto
from tests.importer import Importer, assert_no_errors, read_flows, read_tracks, slices_by_track
from tests.write.drawings import (
    HEADINGS,
    TEXTS,
    UTC,
    counter_lane,
    drawing,
    expected_slices,
    mark_lane,
    random_drawing,
    slice_lane,
    slices,
)

DEEPEST = 512


def written(drawn: Drawing, threads: int | None = None) -> bytes:
    return b"".join(write_perfetto([drawn], threads=threads))


def read_back(importer: Importer, drawn: Drawing) -> list[tuple[Any, ...]]:
    found = slices_by_track(importer, written(drawn))
    assert_no_errors(importer)
    return sorted(found.select(HEADINGS).rows(), key=repr)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_slice_comes_back(importer: Importer, seed: int) -> None:
    drawn = random_drawing(seed)
    assert read_back(importer, drawn) == expected_slices(drawn)


@pytest.mark.parametrize("block_rows", [1, 2, 7])
def test_blocks_may_be_cut_anywhere(
    importer: Importer, monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(perfetto_lanes, "BLOCK_ROWS", block_rows)
    drawn = random_drawing(100 + block_rows)
    assert read_back(importer, drawn) == expected_slices(drawn)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 10, 0), (10, 20, 0), (20, 20, 0), (20, 30, 0)], id="touching"),
        pytest.param([(0, 10, 0), (0, 10, 1), (0, 10, 2)], id="equal"),
        pytest.param([(0, 10, 0), (0, 0, 1), (0, 4, 1), (4, 4, 1), (4, 10, 1)], id="equal start"),
        pytest.param([(5, 5, 0), (5, 5, 0), (5, 5, 1), (5, 5, 2), (5, 5, 0)], id="zero length"),
        pytest.param([(-9, -3, 0), (-9, -9, 1), (7, 8, 0)], id="negative"),
        pytest.param([(2**62, 2**62 + 1, 0)], id="late"),
        pytest.param([(i, 2000 - i, i) for i in range(DEEPEST)], id="deepest"),
        pytest.param([(0, 1, 0)], id="one"),
    ],
)
def test_shapes(importer: Importer, rows: Sequence[tuple[int, int, int]]) -> None:
    drawn = drawing(slice_lane("a", slices([(*row, f"n{i}") for i, row in enumerate(rows)])))
    assert read_back(importer, drawn) == expected_slices(drawn)


def test_an_empty_drawing_is_a_trace(importer: Importer) -> None:
    drawn = drawing(slice_lane("a/b", slices([])), mark_lane("c", []), counter_lane("d", []))
    assert read_back(importer, drawn) == []


def test_long_lanes_of_many_shapes(importer: Importer) -> None:
    count = 70_000
    drawn = drawing(
        slice_lane(
            "a",
            slices(
                [(i * 10, i * 10 + i % 10, 0, TEXTS[i % len(TEXTS)]) for i in range(count)],
                id=pl.Series(range(count)),
                odd=pl.Series([i if i % 2 else None for i in range(count)]),
                third=pl.Series(
                    [TEXTS[i % 5] if i % 3 else None for i in range(count)], dtype=pl.Categorical()
                ),
            ),
        )
    )
    importer.load(written(drawn))
    assert_no_errors(importer)
    sums = importer.query(
        None,
        """
        SELECT count(*) AS n, sum(ts) AS ts, sum(dur) AS dur, sum(extract_arg(arg_set_id, 'debug.id')) AS id,
          count(extract_arg(arg_set_id, 'debug.odd')) AS odd, count(extract_arg(arg_set_id, 'debug.third')) AS third
        FROM (SELECT ts - 1700000000000000000 AS ts, dur, arg_set_id FROM slice)
        """,
    )
    assert sums.row(0) == (
        count,
        sum(i * 10 for i in range(count)),
        sum(i % 10 for i in range(count)),
        sum(range(count)),
        count // 2,
        sum(1 for i in range(count) if i % 3),
    )


def test_a_slice_may_have_no_name(importer: Importer) -> None:
    drawn = drawing(slice_lane("a", slices([(0, 1, 0)])))
    assert read_back(importer, drawn)[0][4] is None


def test_tracks_stand_in_order(importer: Importer) -> None:
    rows = slices([(0, 1, 0, "x")])
    paths = ["node10/GPU 0/stream 7", "node2/GPU 1/b", "node2/GPU 0/z", "node2/GPU 0/a"]
    drawn = drawing(*(slice_lane(path, rows) for path in paths))
    tracks = read_tracks(importer, written(drawn))
    assert ["/".join(path) for path in tracks["path"]] == [
        "run",
        "run/node2",
        "run/node2/GPU 0",
        "run/node2/GPU 0/z",
        "run/node2/GPU 0/a",
        "run/node2/GPU 1",
        "run/node2/GPU 1/b",
        "run/node10",
        "run/node10/GPU 0",
        "run/node10/GPU 0/stream 7",
    ]


def test_tracks_that_are_given_come_first_by_rank(importer: Importer) -> None:
    rows = slices([(0, 1, 0, "x")])
    tracks = [
        Track(path=("m",), name="machine", rank=9, description="a machine"),
        Track(path=("m", "x"), name="first", rank=-5),
        Track(path=("m", "a"), name="last", rank=5),
        Track(path=("m", "empty"), name="nothing on it", rank=0),
    ]
    lanes = [slice_lane("m/a", rows), slice_lane("m/x", rows)]
    found = read_tracks(importer, written(Drawing(root="r", tracks=tracks, lanes=list(lanes))))
    assert found["path"].to_list() == [
        ["r"],
        ["r", "machine"],
        ["r", "machine", "first"],
        ["r", "machine", "last"],
    ]
    assert found["description"].to_list() == [None, "a machine", None, None]


def test_lanes_of_a_track_are_one_row_and_no_other(importer: Importer) -> None:
    rows = slices([(0, 10, 0, "x")])
    same_name = [Track(path=("a",), name="same", rank=0), Track(path=("b",), name="same", rank=1)]
    lanes = [
        slice_lane("a", rows),
        slice_lane("a", rows, lane=1),
        slice_lane("b", rows),
        slice_lane("b", rows, lane=1),
    ]
    tracks = read_tracks(importer, written(Drawing(root="r", tracks=same_name, lanes=list(lanes))))
    groups = tracks.filter(pl.col("path").list.len() == 2)["track_group_id"].to_list()
    assert groups[0] == groups[1]
    assert groups[2] == groups[3]
    assert groups[0] != groups[2]


def test_a_track_may_hold_lanes_and_children(importer: Importer) -> None:
    rows = slices([(0, 10, 0, "x")])
    drawn = drawing(slice_lane("a", rows), slice_lane("a", rows, lane=1), slice_lane("a/b", rows))
    assert read_back(importer, drawn) == expected_slices(drawn)


def test_marks_and_counters(importer: Importer) -> None:
    drawn = drawing(
        mark_lane("a/marks", [(5, "one", None), (5, 'two "', "forward"), (9, None, None)]),
        counter_lane("a/busy", [(0, 0.5), (0, -1.0), (7, 1e300)]),
        counter_lane("b/busy", [(3, 2.0)]),
    )
    found = slices_by_track(importer, written(drawn))
    assert found.select("path", "ts", "dur", "name").rows() == [
        ("run/a/marks", UTC.offset_ns + 5, 0, "one"),
        ("run/a/marks", UTC.offset_ns + 5, 0, 'two "'),
        ("run/a/marks", UTC.offset_ns + 9, 0, None),
    ]
    counters = importer.query(
        None,
        "SELECT name, unit, ts, value FROM counter JOIN counter_track t ON t.id = track_id ORDER BY t.id, ts",
    )
    assert counters.rows() == [
        ("busy", "count", UTC.offset_ns, 0.5),
        ("busy", "count", UTC.offset_ns, -1.0),
        ("busy", "count", UTC.offset_ns + 7, 1e300),
        ("busy", "count", UTC.offset_ns + 3, 2.0),
    ]
    assert_no_errors(importer)


@pytest.mark.parametrize(
    ("unit", "shown"), [("%", "%"), ("bytes", "bytes"), ("ns", "ns"), ("TFLOP/s", "TFLOP/s")]
)
def test_units_of_counters(importer: Importer, unit: str, shown: str) -> None:
    drawn = drawing(counter_lane("a", [(0, 1.0)]), unit=unit)
    assert importer.query(written(drawn), "SELECT unit FROM counter_track").item() == shown


def test_marks_share_the_row_of_their_track(importer: Importer) -> None:
    drawn = drawing(slice_lane("a", slices([(0, 9, 0, "x")])), mark_lane("a", [(3, "m", None)]))
    tracks = read_tracks(importer, written(drawn))
    assert tracks.filter(pl.col("path").list.len() == 2)["track_group_id"].n_unique() == 1


def test_arrows_join_the_slices_that_share_an_id(importer: Importer) -> None:
    chance = random.Random(1)
    ids = [*range(1, 40), 2**64 - 1]
    ends = [(flow, side) for flow in ids for side in range(chance.choice([2, 2, 2, 3, 1]))]
    chance.shuffle(ends)
    lanes = [
        slice_lane(
            f"t{k}",
            slices(
                [(i * 10 + k, i * 10 + k + 5, 0, f"{k} {i}", None, flow) for i, (flow, _) in enumerate(part)]
            ),
            clock=Clock(offset_ns=UTC.offset_ns - k),
        )
        for k, part in enumerate([ends[::2], ends[1::2]])
    ]
    found = slices_by_track(importer, written(drawing(*lanes)))
    names = dict(zip(found["slice_id"], found["name"], strict=True))
    arrows = sorted((names[out], names[into]) for out, into in read_flows(importer))
    starts = sorted(
        (lane.slices["start_ns"][i] + lane.clock.offset_ns, k, flow, lane.slices["name"][i])
        for k, lane in enumerate(lanes)
        for i, flow in enumerate(lane.slices["flow_id"])
    )
    chains = {flow: [name for _, _, other, name in starts if other == flow] for flow in ids}
    assert arrows == sorted(pair for chain in chains.values() for pair in pairwise(chain))
    assert_no_errors(importer)


def test_colours_are_set_by_their_seeds(importer: Importer) -> None:
    kinds = [*COLORS, "a kind of its own", None]
    drawn = drawing(slice_lane("a", slices([(i, i + 1, 0, "n", kind) for i, kind in enumerate(kinds)])))
    found = slices_by_track(importer, written(drawn))["correlation"].to_list()
    assert found == [*(color.seed for color in COLORS.values()), "a kind of its own", None]


def test_wall_clock_time(importer: Importer) -> None:
    drawn = drawing(slice_lane("a", slices([(1_234, 2_000, 0, "x")])))
    sql = "SELECT abs_time_str(ts) AS text, to_realtime(ts) AS real FROM slice"
    assert importer.query(written(drawn), sql).rows() == [
        ("2023-11-14T22:13:20.000001234", UTC.offset_ns + 1_234)
    ]


def test_no_wall_clock_time_where_it_is_unknown(importer: Importer) -> None:
    drawn = drawing(slice_lane("a", slices([(0, 1, 0, "x")]), clock=Clock()), is_utc=False)
    clocks = importer.query(
        written(drawn), "SELECT count(*) FROM clock_snapshot WHERE clock_name = 'REALTIME'"
    )
    assert clocks.item() == 0


def test_attributes_do_no_harm(importer: Importer) -> None:
    plain = drawing(slice_lane("a", slices([(0, 1, 0, "x")])))
    drawn = Drawing(root="run", tracks=plain.tracks, lanes=plain.lanes, attributes={"made by": "é", "b": ""})
    assert read_back(importer, drawn) == expected_slices(plain)


def test_a_lane_moves_by_its_head_alone() -> None:
    rows = slices([(i, i + 1, 0, "x") for i in range(1000)])
    here = list(write_perfetto([drawing(slice_lane("a", rows))]))
    there = list(write_perfetto([drawing(slice_lane("a", rows, clock=Clock(offset_ns=UTC.offset_ns + 5)))]))
    assert len(here) == 3
    assert here[0] != there[0]
    assert here[1] == there[1]


def test_bytes_depend_on_the_drawing_alone() -> None:
    pl.Series(["met", "before", *reversed(TEXTS)], dtype=pl.Categorical())
    assert written(random_drawing(7), threads=1) == written(random_drawing(7), threads=4)


def test_track_uuids_differ_by_every_part() -> None:
    places = [("r", ("a", "b"), 0), ("r", ("a",), 0), ("r", ("a", "b"), 1), ("ra", ("b",), 0), ("r", (), 0)]
    assert len({track_uuid(*place) for place in places}) == len(places)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([(0, 10, 0), (5, 15, 0)], "overlap", id="overlap"),
        pytest.param([(0, 10, 0), (5, 15, 1)], "overlap", id="child ends late"),
        pytest.param([(5, 10, 0), (1, 7, 1)], "overlap", id="child starts early"),
        pytest.param([(0, 10, 0), (1, 5, 2)], "pre-order", id="depth is skipped"),
        pytest.param([(0, 10, 1)], "pre-order", id="starts deep"),
        pytest.param([(0, 9, i) for i in range(DEEPEST + 1)], "513 deep", id="too deep"),
        pytest.param([(7, 3, 0)], "overlap", id="ends before it starts"),
        pytest.param([(-UTC.offset_ns - 1, 0, 0)], "before 0", id="before the trace's clock"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows: Sequence[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written(drawing(slice_lane("a", slices(rows))))


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(drawing(mark_lane("a", [(5, "x", None), (4, "y", None)])), id="marks out of order"),
        pytest.param(drawing(counter_lane("a", [(5, 1.0), (4, 1.0)])), id="samples out of order"),
        pytest.param(
            Drawing(root="r", tracks=[], lanes=[slice_lane("a", slices([(0, 1, 0)]))]), id="no such track"
        ),
        pytest.param(
            Drawing(root="r", tracks=[Track(path=("a",), name="a", rank=0)] * 2, lanes=[]),
            id="same track twice",
        ),
    ],
)
def test_drawings_that_break_their_rules(drawn: Drawing) -> None:
    with pytest.raises(ValueError, match=r"order|track"):
        written(drawn)
